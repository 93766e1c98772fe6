"""Exponents are found where they were planted, and only where there is something to fit."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

import numpy as np
import pytest

from benchmarks.cases.growth import CPU_TOKENS, VALUES, choose_job, padded_groups
from benchmarks.measuring.case import Options
from benchmarks.records.growth import AXES, GROUP, axis_value, case_name, fit_exponents
from benchmarks.registry import all_cases
from benchmarks.tests.made_up import TEMPLATE

if TYPE_CHECKING:
    from benchmarks.records.results import Result


def point(
    axis: str,
    value: int,
    median_ms: float,
    *,
    candidate: str = "ours",
    sequences: int = 1,
    peak_mib: float | None = None,
    noise: float = 0.0,
) -> Result:
    """Make a result of five rounds around a median."""
    drawn = np.random.default_rng(value).normal(1.0, noise, size=5)
    return dataclasses.replace(
        TEMPLATE,
        case=case_name(axis, value),
        candidate=candidate,
        amounts={"sequences": sequences},
        samples_ms=[float(median_ms * factor) for factor in drawn],
        peak_mib=peak_mib,
        peak_of=None if peak_mib is None else "call",
    )


@pytest.mark.parametrize("exponent", [0.0, 1.0, 2.5])
def test_a_planted_exponent_is_found_in_time_and_memory(exponent: float) -> None:
    lines = [
        point("width", w, 3e-3 * w**exponent, peak_mib=w ** (exponent / 2)) for w in (128, 256, 512)
    ]
    time, memory = fit_exponents(lines)
    assert (time.axis, time.candidate, time.quantity) == ("width", "ours", "time")
    assert (memory.quantity, memory.num_points) == ("memory", 3)
    assert time.exponent == pytest.approx(exponent)
    assert memory.exponent == pytest.approx(exponent / 2)
    assert (time.low, time.high) == pytest.approx((exponent, exponent))
    assert memory.low == memory.exponent == memory.high


def test_the_cost_along_length_is_that_of_one_sequence() -> None:
    lines = [
        point("length", length, 8192 / length * 1e-6 * length**2, sequences=8192 // length)
        for length in (1024, 4096, 8192)
    ]
    (fit,) = fit_exponents(lines)
    assert fit.exponent == pytest.approx(2.0)


def test_noise_widens_the_interval_and_the_truth_stays_inside() -> None:
    values = (1, 16, 256, 4096)
    quiet, loud = (
        fit_exponents([point("batch", value, 2.0 * value, noise=noise) for value in values])[0]
        for noise in (0.001, 0.1)
    )
    for fit in (quiet, loud):
        assert fit.low <= fit.exponent <= fit.high
        assert fit.low <= 1.0 <= fit.high
    assert loud.high - loud.low > 10 * (quiet.high - quiet.low)


def test_constant_costs_at_the_lower_end_do_not_count() -> None:
    times = {16: 50.0, 64: 50.0, 256: 50.0, 1024: 100.0, 4096: 400.0, 8192: 800.0}
    (fit,) = fit_exponents([point("length", value, ms) for value, ms in times.items()])
    assert fit.num_points == 3
    assert fit.exponent == pytest.approx(1.0)


def test_a_candidate_that_failed_is_fitted_where_others_are_and_it_was_measured() -> None:
    lengths = (64, 256, 1024, 4096, 8192)
    lines = [point("length", n, float(n)) for n in lengths]
    lines += [point("length", n, float(n**2), candidate="peer") for n in lengths[:-1]]
    lines.append(dataclasses.replace(lines[-1], case=case_name("length", 8192), status="failed"))
    ours, peer = fit_exponents(lines)
    assert (ours.num_points, peer.num_points) == (3, 2)
    assert peer.exponent == pytest.approx(2.0)


def test_without_two_points_there_is_no_fit() -> None:
    lines = [point("layers", 12, 9.0), point("layers", 6, 5.0, candidate="peer")]
    failed = dataclasses.replace(lines[1], case=case_name("layers", 12), status="failed")
    assert fit_exponents([*lines, failed]) == []
    other = dataclasses.replace(point("layers", 3, 4.0), case="encoder/equal")
    assert fit_exponents([*lines, other]) == []


def test_results_that_cannot_stand_side_by_side_are_refused() -> None:
    line = point("width", 128, 1.0)
    with pytest.raises(ValueError, match="two results of growth/width-128"):
        fit_exponents([line, dataclasses.replace(line, run="another")])
    with pytest.raises(ValueError, match="abacus-2c and slide-rule-1c"):
        fit_exponents([line, dataclasses.replace(point("width", 256, 1.0), device="slide-rule-1c")])


def test_every_axis_has_cases_and_every_case_an_axis() -> None:
    points = [axis_value(name) for name in all_cases() if name.startswith(f"{GROUP}/")]
    for axis in AXES:
        values = [point[1] for point in points if point and point[0] == axis]
        assert values == sorted(set(values))
        assert len(values) >= 4
        assert axis_value(case_name(axis, 4096)) == (axis, 4096)
    assert None not in points
    assert axis_value("encoder/equal-512") is None


def test_a_call_along_the_length_holds_the_same_tokens_in_fewer_sequences() -> None:
    jobs = [choose_job("length", value, Options()) for value in VALUES["length"]]
    assert {sum(job.lengths) for job in jobs} == {CPU_TOKENS}
    assert len(jobs[-1].lengths) == 1
    assert len({str(job.config) for job in jobs}) == 1


def test_padded_groups_hold_every_sequence_once_and_no_more_tokens_than_allowed() -> None:
    lengths = [5, 90, 3, 7, 33, 5]
    groups = list(padded_groups(lengths, 20))
    assert sorted(row for group in groups for row in group) == list(range(6))
    assert groups[:2] == [[1], [4]]  # longer than a group may be: alone
    assert all(len(group) * lengths[group[0]] <= 20 for group in groups[2:])
