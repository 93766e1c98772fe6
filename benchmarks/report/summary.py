"""The page's first section: how many times as fast as the best other tool, case by case."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from benchmarks.report.page import Picture, Section, Table
from benchmarks.report.pictures import Bars, draw_bars
from benchmarks.report.runs import OURS, by_device, facing, group_of
from benchmarks.report.words import case_words, count, day, listed, machine_name, number, times

if TYPE_CHECKING:
    from collections.abc import Sequence

    from benchmarks.report.page import Mark
    from benchmarks.report.pictures import Kind
    from benchmarks.report.runs import Facing, Run

# How the names of cases begin that share a picture.
PICTURES = {
    "Text to vectors": ("embedding/", "dataset/"),
    "One short text, and a cold start": ("latency/", "cold_start/"),
    "Within transformers, and training": ("drop_in/", "pretraining/"),
    "Tokenizers, WordPiece": ("tokenizer/wordpiece",),
    "Tokenizers, Unigram": ("tokenizer/xlmr", "tokenizer/xlnet"),
}
# An encoder's forward pass and the operations.
OTHERS = "Forward passes and operations"
AXIS = "speed (times the best other)"
_NAMED_LOSSES = 6


def picture_of(run: Run) -> str:
    """Name the picture that a run belongs into."""
    case = run[0].case
    return next((title for title, starts in PICTURES.items() if case.startswith(starts)), OTHERS)


def summary_section(runs: Sequence[Run]) -> Section:
    """Draw ratios: the newest machine's first."""
    runs = [run for run in runs if run[0].isa is None and group_of(run) != "growth"]
    pairs = [pair for run in runs for pair in facing(run)]
    if not pairs:
        return Section(title="Summary", reading="Nothing has been measured beside a peer yet.")
    pictures = []
    for device, of_device in by_device(runs).items():
        for place, title in enumerate((*PICTURES, OTHERS)):
            shown = [pair for run in of_device if picture_of(run) == title for pair in facing(run)]
            if shown:
                pictures.append(ratio_picture(f"summary-{device}-{place}", title, shown))
    return Section(title="Summary", reading=summary_reading(pairs), blocks=pictures)


def summary_reading(pairs: Sequence[Facing]) -> str:
    """Say in how many cases it wins, and name those that it loses."""
    losses = sorted((pair for pair in pairs if pair.lost), key=lambda pair: pair.ratio)
    wins = len(pairs) - len(losses)
    told = (
        f"In {wins} of {count(len(pairs), 'comparison')} encoder-engine is at least as fast as "
        "the fastest other tool whose results are right."
    )
    if losses:
        worst = [
            f"{label(pair)} ({times(pair.ratio)} {pair.peer.candidate})"
            for pair in losses[:_NAMED_LOSSES]
        ]
        rest = len(losses) - len(worst)
        named = worst if rest == 0 else [*worst, f"{rest} more below"]
        told += f" It is slower in: {'; '.join(named)}."
    return told


def label(pair: Facing) -> str:
    """Name a comparison: the case, and which of ours where there are several."""
    suffix = pair.ours.candidate.removeprefix(OURS).strip(", ")
    words = case_words(pair.ours.case)
    if not suffix or pair.ours.case.startswith("dataset/"):
        return words
    return f"{words}, {suffix}"


def ratio_picture(name: str, title: str, pairs: Sequence[Facing]) -> Picture:
    """Draw one bar per comparison from 1x, the best peer named below each."""
    first = pairs[0].ours
    threads = listed([str(number) for number in sorted({pair.ours.threads for pair in pairs})])
    machine = f"{machine_name(first)}, {threads} thread{'' if threads == '1' else 's'}"
    kinds: list[Kind] = ["loss" if pair.lost else "ours" for pair in pairs]
    marks: dict[int, Mark] = {place: "loss" for place, pair in enumerate(pairs) if pair.lost}
    labels = [f"{label(pair)}\nbest other: {pair.peer.candidate}" for pair in pairs]
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
        caption=f"{title}: times the speed of the best other tool ({machine})",
        draw=partial(draw_bars, labels, kinds, [bars]),
        table=Table(
            header=["case", "engine p50 ms", "best other", "its p50 ms", "times", "on"],
            rows=[
                [
                    label(pair),
                    number(pair.ours.p50_ms),
                    pair.peer.candidate,
                    number(pair.peer.p50_ms),
                    times(pair.ratio),
                    f"{first.device}, {day(pair.ours)}",
                ]
                for pair in pairs
            ],
            marks=marks,
        ),
    )
