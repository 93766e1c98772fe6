"""Renders results as tables: for the report, and for the terminal."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.table import Table

from benchmarks.records.words import amount, count, number

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from benchmarks.records.compare import Comparison
    from benchmarks.records.results import Result

Row = list[str]
# Cores' worth of other work above which figures are marked as disturbed.
BUSY = 0.1
RESULT_HEADER = (
    *("candidate", "p50 ms", "p20 .. p80", "per second"),
    *("peak MiB", "of the limit", "x best peer"),
)
_COMPARISON_HEADER = (
    *("device", "case", "candidate", "runs", "paced by"),
    *("before ms", "after ms", "ratio", ""),
)


def footnotes(run: Sequence[Result]) -> list[str]:
    """Return notes on a run: the gate's figures, kind of peak memory, reasons for missing times."""
    notes = []
    busy = max((result.other_cores or 0.0 for result in run), default=0.0)
    if busy >= BUSY:
        notes.append(f"not a quiet machine: other processes used {busy:.2f} cores meanwhile")
    for result in run:
        figures = ", ".join(f"{k.replace('_', ' ')} {v:.9g}" for k, v in result.gate.items())
        if result.status == "measured":
            memory = "" if result.peak_of is None else f"; peak memory of the {result.peak_of}"
            processor = result.cpu_p50_ms
            spent = "" if processor is None else f"; {number(processor)} ms of CPU time"
            notes.append(f"{result.candidate}: {figures}{memory}{spent}")
        else:
            figures = f" ({figures})" if figures else ""
            notes.append(f"{result.candidate}: {result.status}: {result.reason}{figures}")
    return notes


def markdown_table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    """Return the lines of a Markdown table."""
    lines = [header, ["---"] * len(header), *rows]
    return [f"| {' | '.join(cell.replace('|', '/') for cell in line)} |" for line in lines]


def result_table(run: Sequence[Result]) -> Table:
    """Return the terminal's table of one run's results."""
    return _rich_table(run[0].case, RESULT_HEADER, result_rows(run))


def comparison_table(comparisons: Sequence[Comparison]) -> Table:
    """Return the terminal's table of a comparison of two commits."""
    return _rich_table("", _COMPARISON_HEADER, [comparison_row(c) for c in comparisons])


def _rich_table(title: str, header: Sequence[str], rows: Iterable[Row]) -> Table:
    table = Table(title=title or None, title_justify="left")
    for column, name in enumerate(header):
        table.add_column(name, justify="left" if column == 0 else "right", overflow="fold")
    for row in rows:
        table.add_row(*row)
    return table


def result_rows(run: Sequence[Result]) -> list[Row]:
    """Return the table rows of the measured candidates."""
    return [_result_row(result) for result in run if result.status == "measured"]


def _result_row(result: Result) -> Row:
    settings = ", ".join(f"{name} {value}" for name, value in result.settings.items())
    return [
        f"{result.candidate} ({settings})" if settings else result.candidate,
        number(result.p50_ms),
        f"{number(result.p20_ms)} .. {number(result.p80_ms)}"
        + ("" if result.p99_ms is None else f", p99 {number(result.p99_ms)}"),
        ", ".join(amount(what, rate) for what, rate in result.throughput_per_s.items()),
        number(result.peak_mib),
        "" if result.fraction_of_limit is None else f"{result.fraction_of_limit:.0%}",
        "" if result.ratio_to_best_peer is None else f"{result.ratio_to_best_peer:.2f}",
    ]


def comparison_row(comparison: Comparison) -> Row:
    """Return the table row of a comparison; the last column is empty if nothing changed.

    Times are corrected by the pace of the peers, as the ratio is.
    """
    base, head = comparison.base_ms, comparison.head_ms
    return [
        comparison.device,
        comparison.case,
        comparison.candidate,
        f"{len(base)}, {len(head)}",
        count(comparison.num_paced, "peer") if comparison.num_paced else "nobody",
        f"{number(min(base))} .. {number(max(base))}",
        f"{number(min(head))} .. {number(max(head))}",
        f"{comparison.ratio:.3f}",
        "" if comparison.change == "same" else comparison.change,
    ]
