"""The page's first section: how many times as fast as the best other tool, case by case."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from benchmarks.records.runs import NO_CONTEST, OURS, broken, by_device, facing, group_of
from benchmarks.records.words import case_words, count, day, listed, machine_name, number, times
from benchmarks.report.page import Picture, Section, Table
from benchmarks.report.pictures import Bars, draw_bars

if TYPE_CHECKING:
    from collections.abc import Sequence

    from benchmarks.records.runs import Facing, Run
    from benchmarks.report.page import Mark
    from benchmarks.report.pictures import Kind

# How the names of cases begin that share a picture.
PICTURES = {
    "Text to vectors": ("embedding/", "dataset/"),
    "One short text, and a cold start": ("latency/", "cold_start/"),
    "Within transformers, and training": (
        *("drop_in/", "finetuning/", "finetuning_gpu/"),
        *("pretraining/", "pretraining_gpu/"),
    ),
    "Tokenizers, WordPiece": ("tokenizer/wordpiece",),
    "Tokenizers, Unigram": ("tokenizer/xlmr", "tokenizer/xlnet"),
}
# An encoder's forward pass and the operations.
OTHERS = "Forward passes and operations"
AXIS = "speed (times the other's)"
_NAMED_LOSSES = 6


def picture_of(run: Run) -> str:
    """Name the picture that a run belongs into."""
    case = run[0].case
    return next((title for title, starts in PICTURES.items() if case.startswith(starts)), OTHERS)


def summary_section(runs: Sequence[Run]) -> Section:
    """Draw ratios: the newest machine's first."""
    runs = [run for run in runs if run[0].isa is None and group_of(run) not in NO_CONTEST]
    if not any(facing(run) or broken(run) for run in runs):
        return Section(title="Summary", reading="Nothing has been measured beside a peer yet.")
    pictures = []
    for device, of_device in by_device(runs).items():
        for place, title in enumerate((*PICTURES, OTHERS)):
            shown = [pair for run in of_device if picture_of(run) == title for pair in facing(run)]
            if shown:
                pictures.append(ratio_picture(f"summary-{device}-{place}", title, shown))
    return Section(title="Summary", reading=summary_reading(runs), blocks=pictures)


def summary_reading(runs: Sequence[Run]) -> str:
    """Count the cases in which the engine is faster; name losses and missing results."""
    pairs = [pair for run in runs for pair in facing(run)]
    contests = [pair for pair in pairs if pair.num_others > 1]
    alone = [pair for pair in pairs if pair.num_others == 1]
    failed = [result for run in runs for result in broken(run)]
    wins = sum(not pair.lost for pair in contests)
    told = (
        f"In {wins} of {count(len(contests) + len(failed), 'comparison')} encoder-engine is at "
        "least as fast as the fastest other tool whose results are right."
    )
    if alone:
        wins = sum(not pair.lost for pair in alone)
        told += f" Of {len(alone)} more, with one other tool alone, it is in {wins}."
    losses = losses_of(runs)
    if losses:
        named = [f"{label(p)} ({times(p.ratio)} {p.peer.candidate})" for p in losses]
        rest = len(losses) - _NAMED_LOSSES
        named = named if rest <= 0 else [*named[:_NAMED_LOSSES], f"{rest} more below"]
        told += f" It is slower in: {'; '.join(named)}."
    if failed:
        named = [f"{case_words(r.case)}, {r.candidate} ({r.reason or r.status})" for r in failed]
        told += f" It has no right result in: {'; '.join(named)}."
    return told


def losses_of(runs: Sequence[Run]) -> list[Facing]:
    """Return every comparison in which the engine is slower, the worst first."""
    losses = [pair for run in runs for pair in facing(run) if pair.lost]
    return sorted(losses, key=lambda pair: pair.ratio)


def label(pair: Facing) -> str:
    """Name a comparison: the case and, where there are several, the engine's candidate."""
    suffix = pair.ours.candidate.removeprefix(OURS).strip(", ")
    words = case_words(pair.ours.case)
    if not suffix or pair.ours.case.startswith("dataset/"):
        return words
    return f"{words}, {suffix}"


def ratio_picture(name: str, title: str, pairs: Sequence[Facing]) -> Picture:
    """Draw one bar per comparison, starting at 1x, labelled with the peer."""
    first = pairs[0].ours
    threads = listed([str(n) for n in sorted({pair.ours.threads for pair in pairs})])
    machine = f"{machine_name(first)}, {threads} thread{'' if threads == '1' else 's'}"
    kinds: list[Kind] = ["loss" if pair.lost else "ours" for pair in pairs]
    marks: dict[int, Mark] = {place: "loss" for place, pair in enumerate(pairs) if pair.lost}
    labels = [f"{label(pair)}\n{pair.beside}" for pair in pairs]
    bars = Bars(
        axis=AXIS,
        values=[pair.ratio for pair in pairs],
        texts=[times(pair.ratio) + (", slower" if pair.lost else "") for pair in pairs],
        log=True,
        start=1.0,
        line=1.0,
    )
    return Picture(
        name=name,
        main=True,
        caption=f"{title}: times the speed of the best other tool, or of the only one ({machine})",
        draw=partial(draw_bars, labels, kinds, [bars]),
        table=Table(
            header=["case", "engine p50 ms", "compared with", "its p50 ms", "times", "on"],
            rows=[
                [
                    label(pair),
                    number(pair.ours.p50_ms),
                    pair.beside,
                    number(pair.peer.p50_ms),
                    times(pair.ratio),
                    f"{first.device}, {day(pair.ours)}",
                ]
                for pair in pairs
            ],
            marks=marks,
        ),
    )
