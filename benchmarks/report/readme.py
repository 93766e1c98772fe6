"""README's short table of results: one headline case for each kind of user, losses included."""

from __future__ import annotations

from typing import TYPE_CHECKING

from benchmarks.records.runs import facing
from benchmarks.records.words import case_words, count, day, machine_name, number, times
from benchmarks.report.page import contests, label, losses_of
from benchmarks.report.tables import markdown_table

if TYPE_CHECKING:
    from collections.abc import Sequence

    from benchmarks.records.runs import Facing, Run

BEGIN = "<!-- benchmarks: written by `python -m benchmarks report --readme` -->"
END = "<!-- benchmarks end -->"
# Case, and the number of threads where it was run with several.
HEADLINES: dict[str, int | None] = {
    "tokenizer/wordpiece-english": 1,
    "tokenizer/xlmr-batch": 1,
    "embedding/minilm-float32-skewed": None,
    "embedding/minilm-bfloat16-skewed": None,
    "embedding/minilm-int8-skewed": None,
    "latency/minilm-float32": None,
    "cold_start/minilm-float32": None,
    "prediction/text-classification-float32": None,
    "drop_in/encode-skewed": None,
    "pretraining/base-bfloat16": None,
    "embedding_gpu/passages": None,
    "embedding_gpu/text": None,
}
HEADER = ["case", "engine", "compared with", "times as fast", "measured on"]


def readme_table(runs: Sequence[Run]) -> str:
    """Return the table between its markers, and below it all other comparisons that are lost."""
    shown = {case: _headline(case, threads, runs) for case, threads in HEADLINES.items()}
    rows = [_row(case, pair) for case, pair in shown.items()]
    compared = contests(runs)
    losses = [pair for pair in losses_of(compared) if pair not in shown.values()]
    others = sum(pair not in shown.values() for run in compared for pair in facing(run))
    below = []
    if losses:
        named = [
            f"{label(pair)} ({times(pair.ratio)} {pair.peer.candidate}, "
            f"on {machine_name(pair.ours)})"
            for pair in losses
        ]
        summary = f"<summary>Slower in {len(losses)} of {others} other comparisons</summary>"
        below = ["", f"<details>{summary}{'; '.join(named)}.</details>"]
    return "\n".join([BEGIN, *markdown_table(HEADER, rows), *below, END])


def write_readme(text: str, runs: Sequence[Run]) -> str:
    """Return README's text with its table replaced by the new one.

    Raises ``ValueError`` where the markers are missing.
    """
    if text.count(BEGIN) != 1 or text.count(END) != 1:
        raise ValueError(f"README.md lacks the table's markers: expected one {BEGIN} and {END}")
    before, rest = text.split(BEGIN)
    return before + readme_table(runs) + rest.split(END)[1]


def _headline(case: str, threads: int | None, runs: Sequence[Run]) -> Facing | None:
    """Return the newest comparison of a case; ``threads`` None: with any number of threads."""
    candidates = [
        run
        for run in runs
        if run[0].case == case and run[0].isa is None and threads in (None, run[0].threads)
    ]
    run = max(candidates, key=lambda run: run[0].time_utc, default=())
    return next(iter(facing(run)), None) if run else None


def _row(case: str, pair: Facing | None) -> list[str]:
    if pair is None:
        return [case_words(case), "not measured yet", "", "", ""]
    ratio = times(pair.ratio)
    first = pair.ours
    return [
        case_words(case),
        _speed(pair, "ours"),
        f"{pair.beside}, {_speed(pair, 'peer')}",
        f"**{ratio}, slower**" if pair.lost else ratio,
        f"{machine_name(first)}, {count(first.threads, 'thread')}, {day(first)}",
    ]


def _speed(pair: Facing, role: str) -> str:
    """Format the speed of one side (``role``): MB, documents, texts or tokens per second, or ms."""
    result = pair.ours if role == "ours" else pair.peer
    group = result.case.partition("/")[0]
    for what, unit, scale in (
        ("bytes", "MB/s", 1e6),
        ("documents", "documents/s", 1.0),
        ("texts", "texts/s", 1.0),
        ("tokens", "tokens/s", 1.0),
    ):
        if what in result.throughput_per_s and group not in ("latency", "cold_start"):
            return f"{number(result.throughput_per_s[what] / scale)} {unit}"
    return f"{number(result.p50_ms)} ms"
