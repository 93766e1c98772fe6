"""Section on how time and memory grow with length, batch, vocabulary, layers and width."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from benchmarks.records.growth import AXES, GROUP, fit_exponents, place
from benchmarks.records.runs import OURS, by_device, group_of
from benchmarks.records.words import device_words
from benchmarks.report.page import Items, Picture, Section, Table
from benchmarks.report.pictures import Lines, draw_lines

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from benchmarks.records.growth import Fit
    from benchmarks.records.results import Result
    from benchmarks.records.runs import Run
    from benchmarks.report.page import Block

TITLE = "How cost grows"
X_AXES = {
    "length": "length (tokens a text)",
    "batch": "batch (texts a call)",
    "vocabulary": "vocabulary (words)",
    "layers": "depth (layers)",
    "width": "width (features)",
}
Y_AXES = {"tokens": "speed (tokens a second)", "memory": "memory of a call (MiB)"}


def growth_section(runs: Sequence[Run]) -> Section:
    """Draw each axis, with the fitted exponents in numbers, and name who failed where."""
    runs = [run for run in runs if group_of(run) == GROUP and run[0].isa is None]
    if not runs:
        return Section(title=TITLE, reading="No case of growth has been measured yet.")
    blocks: list[Block] = []
    told: dict[str, float] = {}
    for results in _alike(runs):
        fits = fit_exponents(results)
        for axis in AXES:
            on_axis = [r for r in results if _value(r, axis) is not None]
            if any(r.p50_ms for r in on_axis):
                ours = [fit for fit in fits if fit.axis == axis and fit.candidate.startswith(OURS)]
                for fit in ours:
                    if fit.quantity == "time":
                        told.setdefault(axis, fit.exponent)
                blocks.append(growth_picture(axis, on_axis, fits))
                blocks += _failures(axis, on_axis)
    reading = "What more of one thing costs: an exponent of 1 doubles with it, of 2 is four times"
    if told:
        exponents = ", ".join(f"{exponent:.2f} with {axis}" for axis, exponent in told.items())
        reading += f"; encoder-engine's time grows by {exponents}"
    return Section(title=TITLE, reading=f"{reading}.", blocks=blocks)


def _alike(runs: Sequence[Run]) -> Iterator[list[Result]]:
    """Group results by device and number of threads."""
    for of_device in by_device(runs).values():
        for threads in sorted({run[0].threads for run in of_device}, reverse=True):
            yield [result for run in of_device for result in run if result.threads == threads]


def growth_picture(axis: str, results: Sequence[Result], fits: Sequence[Fit]) -> Picture:
    """Draw speed and memory over the axis, a line for each candidate."""
    names = list(dict.fromkeys(r.candidate for r in results if r.p50_ms))
    names.sort(key=lambda name: not name.startswith(OURS))
    panels = [
        Lines(
            x_axis=X_AXES[axis],
            y_axis=label,
            points=[_points(results, axis, name, what) for name in names],
            log=True,
        )
        for what, label in Y_AXES.items()
        if any(_points(results, axis, name, what) for name in names)
    ]
    rows = [
        [
            fit.candidate,
            fit.quantity,
            f"{fit.exponent:.2f}",
            f"{fit.low:.2f} .. {fit.high:.2f}",
            str(fit.num_points),
        ]
        for fit in fits
        if fit.axis == axis
    ]
    return Picture(
        name=f"growth-{results[0].device}-{results[0].threads}-{axis}",
        main=True,
        caption=f"Speed and memory by {axis} ({device_words(results[0])})",
        draw=partial(draw_lines, names, panels),
        table=Table(header=["candidate", "of", "exponent", "95 %", "points"], rows=rows),
    )


def _value(result: Result, axis: str) -> int | None:
    found = place(result.case)
    return None if found is None or found[0] != axis else found[1]


def _points(
    results: Sequence[Result], axis: str, candidate: str, what: str
) -> list[tuple[float, float]]:
    found = []
    for result in results:
        value = _value(result, axis)
        reached = result.throughput_per_s.get("tokens") if what == "tokens" else result.peak_mib
        if result.candidate == candidate and value is not None and reached:
            found.append((float(value), reached))
    return sorted(found)


def _failures(axis: str, results: Sequence[Result]) -> list[Block]:
    items = [
        f"{r.candidate} at {axis} {_value(r, axis):,}: {r.status}: {r.reason}"
        for r in results
        if r.status in ("failed", "gate failed", "left out")
    ]
    return [Items(items=items)] if items else []
