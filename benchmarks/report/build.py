"""Builds the page from all recorded results."""

from __future__ import annotations

from typing import TYPE_CHECKING

from benchmarks.records import results as records
from benchmarks.records.runs import by_device
from benchmarks.records.words import count, day, listed
from benchmarks.report import details, speed
from benchmarks.report.aims import target_section
from benchmarks.report.growth import growth_section
from benchmarks.report.page import Page
from benchmarks.report.summary import summary_section

if TYPE_CHECKING:
    from collections.abc import Sequence

    from benchmarks.records.front_doors import FrontDoor
    from benchmarks.records.resident import Resident
    from benchmarks.records.results import Result

TITLE = "Benchmark results"


def make_page(
    results: Sequence[Result],
    *,
    residents: Sequence[Resident] = (),
    front_doors: Sequence[FrontDoor] = (),
    every_case: bool = True,
) -> Page:
    """Build the page.

    ``every_case``: all figures, at the end.
    """
    runs = records.latest_runs(results)
    if not runs:
        reading = "Nothing has been measured yet: `python -m benchmarks run`."
        return Page(title=TITLE, reading=reading, sections=[details.method_section()])
    machines = by_device(runs)
    days = sorted(day(run[0]) for run in runs)
    cases = count(len({run[0].case for run in runs}), "case")
    reading = (
        f"encoder-engine beside other tools for the same work: {count(len(runs), 'run')} of "
        f"{cases} on {listed([f'`{name}`' for name in machines])}, {days[0]} to {days[-1]}. "
        "Whatever is slower is shown as such."
    )
    quick = any(result.quick for run in runs for result in run)
    if quick:
        reading = f"A first answer, on a part of the texts: no target is held to it. {reading}"
    sections = [
        summary_section(runs),
        *([] if quick else [target_section(records.all_runs(results), residents, front_doors)]),
        speed.embedding_section(runs),
        speed.limit_section(runs),
        growth_section(runs),
        speed.latency_section(runs),
        speed.memory_section(runs, residents),
        speed.training_section(runs),
        details.tokenizer_section(runs),
        details.operation_section(runs),
        details.missing_section(runs),
        details.machine_section(runs),
        details.method_section(),
        *([details.case_section(runs)] if every_case else []),
    ]
    return Page(title=TITLE, reading=reading, sections=sections)
