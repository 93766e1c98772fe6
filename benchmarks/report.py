"""Writes results as tables: Markdown for the report, rich ones for the terminal."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.table import Table

from benchmarks.tokenizer_report import HEADER as TOKENIZER_HEADER
from benchmarks.tokenizer_report import is_tokenizer_run, tokenizer_row

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from benchmarks.compare import Comparison
    from benchmarks.results import Result

Row = list[str]
_UNITS = {
    "bytes": (1e6, "MB"),
    "moved bytes": (1e9, "GB moved"),
    "operations": (1e9, "G operations"),
}
# Cores' worth of other work above which figures are marked as disturbed.
BUSY = 0.1
_RESULT_HEADER = [
    "candidate",
    "p50 ms",
    "p20 .. p80",
    "per second",
    "peak MiB",
    "of the limit",
    "x best peer",
]
_COMPARISON_HEADER = ["device", "case", "candidate", "before ms", "after ms", "ratio", "95 %", ""]


def markdown_report(runs: Sequence[Sequence[Result]]) -> str:
    """Write the newest run of each case; what was skipped or failed is named below its table."""
    lines = ["# Benchmark results", ""]
    if not runs:
        lines += ["Nothing has been measured yet: `python -m benchmarks run`.", ""]
    for device in dict.fromkeys(run[0].device for run in runs):
        of_device = [run for run in runs if run[0].device == device]
        lines += [f"## {of_device[0][0].device_name} (`{device}`)", ""]
        lines += _tokenizer_tables([run for run in of_device if is_tokenizer_run(run)])
        for run in of_device:
            lines += [*_case_report(run), ""]
    return "\n".join(lines)


def _tokenizer_tables(runs: Sequence[Sequence[Result]]) -> list[str]:
    """Put all tokenizer cases into one table, for each instruction set that was run."""
    lines = []
    for isa in dict.fromkeys(run[0].isa for run in runs):
        rows = [tokenizer_row(run) for run in runs if run[0].isa == isa]
        title = "### Tokenizers" if isa is None else f"### Tokenizers, restricted to {isa}"
        lines += [title, "", *markdown_table(TOKENIZER_HEADER, rows), ""]
    return lines


def _case_report(run: Sequence[Result]) -> list[str]:
    first = run[0]
    state = " with changes" if first.dirty else ""
    amounts = ", ".join(amount(what, value) for what, value in first.amounts.items())
    versions = ", ".join(f"{name} {version}" for name, version in first.versions.items())
    return [
        f"### {first.case}",
        "",
        f"{amounts}; {first.threads} threads{restricted(first)}; commit {first.commit}{state}; "
        f"{first.time_utc}; {versions}.",
        "",
        *markdown_table(_RESULT_HEADER, [result_row(result) for result in _measured(run)]),
        "",
        *(f"- {text}" for text in footnotes(run)),
    ]


def restricted(result: Result) -> str:
    """Say what instruction set the engine was restricted to, where it was."""
    return "" if result.isa is None else f"; the engine restricted to {result.isa}"


def _measured(run: Sequence[Result]) -> list[Result]:
    return [result for result in run if result.status == "measured"]


def footnotes(run: Sequence[Result]) -> list[str]:
    """Say what the gate found, whose memory was counted, and why a candidate has no time."""
    notes = []
    busy = max((result.other_cores or 0.0 for result in run), default=0.0)
    if busy >= BUSY:
        notes.append(f"not a quiet machine: other processes used {busy:.2f} cores meanwhile")
    for result in run:
        if result.status == "measured":
            memory = "" if result.peak_of is None else f"; peak memory of the {result.peak_of}"
            notes.append(f"{result.candidate}: {gate_figures(result)}{memory}")
        else:
            figures = f" ({gate_figures(result)})" if result.gate else ""
            notes.append(f"{result.candidate}: {result.status}: {result.reason}{figures}")
    return notes


def markdown_table(header: Sequence[str], rows: Iterable[Row]) -> list[str]:
    """Lay out a table."""
    lines = [header, ["---"] * len(header), *rows]
    return [f"| {' | '.join(cell.replace('|', '/') for cell in line)} |" for line in lines]


def result_table(run: Sequence[Result]) -> Table:
    """Lay out one run for the terminal."""
    return _rich_table(run[0].case, _RESULT_HEADER, [result_row(r) for r in _measured(run)])


def comparison_table(comparisons: Sequence[Comparison]) -> Table:
    """Lay out a comparison of two commits."""
    return _rich_table("", _COMPARISON_HEADER, [comparison_row(c) for c in comparisons])


def _rich_table(title: str, header: Sequence[str], rows: Iterable[Row]) -> Table:
    table = Table(title=title or None, title_justify="left")
    for number, name in enumerate(header):
        table.add_column(name, justify="left" if number == 0 else "right", overflow="fold")
    for row in rows:
        table.add_row(*row)
    return table


def result_row(result: Result) -> Row:
    """Write a measured candidate's figures."""
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


def gate_figures(result: Result) -> str:
    """Write what the gate found: ``min cosine 0.9999999``."""
    return ", ".join(f"{k.replace('_', ' ')} {v:.9g}" for k, v in result.gate.items())


def comparison_row(comparison: Comparison) -> Row:
    """Write one line of a comparison; what did not change says nothing in the last column."""
    ratio = comparison.ratio
    return [
        comparison.device,
        comparison.case,
        comparison.candidate,
        number(comparison.base_ms),
        number(comparison.head_ms),
        f"{ratio.median:.3f}",
        f"{ratio.low:.3f} .. {ratio.high:.3f}",
        "" if ratio.change == "same" else ratio.change,
    ]


def amount(what: str, value: float) -> str:
    """Write an amount; bytes in MB of 10^6, operations in units of 10^9."""
    if what in _UNITS:
        unit, name = _UNITS[what]
        return f"{number(value / unit)} {name}"
    return f"{number(value)} {what}"


def number(value: float | None) -> str:
    """Write a figure with three digits, or all of its whole part."""
    if value is None:
        return ""
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"
