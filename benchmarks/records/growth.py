"""Fits growth exponents to the results of the ``growth`` cases.

A case ``growth/<axis>-<value>`` does the same work at one value of the axis. Time and memory are
fitted as ``~ value ** exponent``. On the axis ``length``, where a call holds fewer sequences the
longer they are, the cost is that of one sequence; on every other axis it is that of one call. Along
``length`` an exponent of 1 is linear cost and 2 that of attention; along ``width`` 2 is the cost of
GEMMs.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    import numpy.typing as npt

    from benchmarks.records.results import Result

    Floats = npt.NDArray[np.float64]

GROUP = "growth"
Quantity = Literal["time", "memory"]
# Each axis, and of which of a call's amounts the cost is shared out; None: the call is the unit.
AXES: Mapping[str, str | None] = {
    "length": "sequences",
    "batch": None,
    "vocabulary": None,
    "layers": None,
    "width": None,
}
# Below its upper half an axis shows what a call costs before it does anything.
LEAST_POINTS = 3
NUM_RESAMPLES = 4000


@dataclass(frozen=True, kw_only=True)
class Fit:
    """The exponent of a candidate's cost along an axis, with its 95 % interval.

    The interval covers the spread of rounds only. Memory is recorded once per point: its interval
    is the exponent alone. ``num_points`` is smaller where the candidate failed at some points.
    """

    axis: str
    candidate: str
    quantity: Quantity
    exponent: float
    low: float
    high: float
    num_points: int


def case_name(axis: str, value: int) -> str:
    """Name the case of a value of an axis."""
    return f"{GROUP}/{axis}-{value}"


def axis_value(case: str) -> tuple[str, int] | None:
    """Return the axis and value of a case's name; None for a case of another group."""
    group, _, name = case.partition("/")
    axis, _, value = name.partition("-")
    return (axis, int(value)) if group == GROUP and axis in AXES else None


def fit_exponents(results: Sequence[Result]) -> list[Fit]:
    """Fit time and memory of each candidate along each axis, in the order of :data:`AXES`.

    ``results``: lines of one device, one run of each case; those of other groups are passed over.
    Least squares of the logarithms, over the upper half of the axis' values (at least three), of
    the median time and of ``peak_mib`` where that is a call's own. A candidate with fewer than two
    such points has no fit. The interval is a percentile bootstrap over each point's rounds.

    Raises ``ValueError`` for results of several devices, and for two of one candidate and case.
    """
    placed: dict[tuple[str, int, str], Result] = {}
    for result in results:
        point = axis_value(result.case)
        if point is None:
            continue
        if placed.setdefault((*point, result.candidate), result) is not result:
            raise ValueError(f"{result.candidate} has two results of {result.case}, expected one")
    devices = sorted({result.device for result in placed.values()})
    if len(devices) > 1:
        raise ValueError(f"results of {' and '.join(devices)}, expected those of one device")
    return [fit for axis in AXES for fit in _fits(axis, placed)]


def _fits(axis: str, placed: Mapping[tuple[str, int, str], Result]) -> Iterator[Fit]:
    lines = {(value, name): line for (of, value, name), line in placed.items() if of == axis}
    values = sorted({value for value, _ in lines})
    upper = values[-max(LEAST_POINTS, math.ceil(len(values) / 2)) :]
    for candidate in dict.fromkeys(name for _, name in lines):
        points = {v: lines[v, candidate] for v in upper if (v, candidate) in lines}
        measured = {v: line for v, line in points.items() if line.status == "measured"}
        units = {v: _units(axis, line) for v, line in measured.items()}
        times = {v: np.asarray(line.samples_ms) / units[v] for v, line in measured.items()}
        peaks = {
            v: np.asarray([line.peak_mib]) / units[v]
            for v, line in measured.items()
            if line.peak_of == "call" and line.peak_mib
        }
        if len(times) > 1:
            yield _fit(axis, candidate, "time", times)
        if len(peaks) > 1:
            yield _fit(axis, candidate, "memory", peaks)


def _units(axis: str, line: Result) -> int:
    unit = AXES[axis]
    return 1 if unit is None else line.amounts[unit]


def _fit(axis: str, candidate: str, quantity: Quantity, samples: Mapping[int, Floats]) -> Fit:
    """Fit the medians of each point's samples, and those of samples drawn from them again."""
    generator = np.random.default_rng(0)
    logarithms = np.log(np.asarray(list(samples), np.float64))
    medians = np.asarray([np.median(drawn) for drawn in samples.values()])
    redrawn = np.stack(
        [
            np.median(generator.choice(drawn, size=(NUM_RESAMPLES, len(drawn))), axis=1)
            for drawn in samples.values()
        ]
    )
    # All in one product, whose last bit may depend on its shape.
    slopes = _slopes(logarithms, np.log(np.column_stack([medians, redrawn])))
    low, high = np.percentile(slopes[1:], (2.5, 97.5))
    return Fit(
        axis=axis,
        candidate=candidate,
        quantity=quantity,
        exponent=float(slopes[0]),
        low=float(low),
        high=float(high),
        num_points=len(samples),
    )


def _slopes(x_P: Floats, y_PR: Floats) -> Floats:
    """Return the slope of the least-squares line through P points, of each of R columns."""
    centred_P = x_P - x_P.mean()
    slopes: Floats = centred_P @ y_PR / (centred_P @ centred_P)
    return slopes
