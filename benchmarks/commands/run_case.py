"""Measures one case and shows it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.console import Console

from benchmarks.measuring.measure import measure
from benchmarks.records import results as records
from benchmarks.report.tables import footnotes, result_table

if TYPE_CHECKING:
    from benchmarks.measuring.case import CaseSpec, Options
    from benchmarks.measuring.machine import Device
    from benchmarks.records.results import Result


def run_case(
    spec: CaseSpec, options: Options, machine: Device, console: Console, *, rounds: int | None
) -> list[Result]:
    """Measure one case and print it; returns None where the case cannot run here."""
    reason = spec.unavailable()
    if reason is not None:
        console.print(f"{spec.name}: skipped: {reason}", highlight=False)
        return []
    with console.status(f"{spec.name}: preparing", refresh_per_second=2) as status:
        case = spec.case(options)
        measurements = measure(
            case,
            threads=options.threads,
            rounds=rounds,
            smoke=options.smoke,
            watch=lambda message: status.update(f"{spec.name}: {message}"),
        )
    lines = records.make_results(
        case, measurements, device=machine, threads=options.threads, quick=options.quick
    )
    console.print(result_table(lines))
    for text in footnotes(lines):
        console.print(f"  {text}", highlight=False, markup=False)
    return lines


def open_console() -> Console:
    """Open a console on standard output; without a terminal, tables keep their columns."""
    console = Console()
    return console if console.is_terminal else Console(width=120)
