"""Measures one case and shows it."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from rich.console import Console

from benchmarks.measuring.measure import MIN_ROUNDS, measure
from benchmarks.records import results as records
from benchmarks.report.tables import footnotes, result_table

if TYPE_CHECKING:
    from benchmarks.measuring.case import CaseSpec, Options
    from benchmarks.measuring.machine import Device
    from benchmarks.records.results import Result


def run_case(
    spec: CaseSpec, options: Options, machine: Device, console: Console, *, rounds: int | None
) -> list[Result]:
    """Measure one case, print it and return its results: none where it cannot run here."""
    reason = spec.unavailable()
    if reason is not None:
        console.print(f"{spec.name}: skipped: {reason}", highlight=False)
        return []
    with console.status(f"{spec.name}: preparing", refresh_per_second=2) as status:
        case = spec.case(options)
        if options.quick and not case.single:
            rounds = MIN_ROUNDS
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


class Progress:
    """Prints a line before each case: the case's number, and the time since the first began."""

    def __init__(self, console: Console, total: int) -> None:
        self._console, self._total = console, total
        self._begun = time.monotonic()
        self._number = 0

    @property
    def minutes(self) -> float:
        """The minutes since the first case began."""
        return (time.monotonic() - self._begun) / 60

    def begin(self, name: str) -> None:
        """Count a case and print its line."""
        self._number += 1
        minutes, seconds = divmod(int(60 * self.minutes), 60)
        line = f"[{self._number} of {self._total}, {minutes}:{seconds:02d}] {name}"
        self._console.print(line, markup=False, highlight=False)


def open_console() -> Console:
    """Open a console on standard output; without a terminal, tables keep their columns."""
    console = Console()
    return console if console.is_terminal else Console(width=120)
