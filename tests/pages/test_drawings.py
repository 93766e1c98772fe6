"""Axes of drawings have round ticks within the range of the values."""

from __future__ import annotations

import math
import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from encoder_engine.pages.drawings import draw_curves, draw_lines, round_ticks
from encoder_engine.training.curves import draw_losses

FINITE = st.floats(-1e9, 1e9, allow_nan=False)


@pytest.mark.parametrize(
    ("values", "names"),
    [
        ([0.0, 1.0], ["0", "0.2", "0.4", "0.6", "0.8", "1"]),
        ([0.0, 97.3], ["0", "20", "40", "60", "80"]),
        ([2.31, 2.34], ["2.31", "2.32", "2.33", "2.34"]),
        ([-3.0, 7.0], ["-2", "0", "2", "4", "6"]),
        ([0.0, 350.0], ["0", "100", "200", "300"]),
        ([0.0, 1_234_567.0], ["0", "0.5M", "1M"]),
        ([5.0, 5.0], ["5"]),
    ],
)
def test_ticks_are_round(values: list[float], names: list[str]) -> None:
    assert [name for _, name in round_ticks(values)] == names


@given(low=FINITE, span=st.floats(1e-3, 1e9))
def test_ticks_lie_in_the_range_and_differ_by_one_round_step(low: float, span: float) -> None:
    ticks = [value for value, _ in round_ticks([low, low + span])]
    # Steps of the next round size are at most 2.5 times as large: 2 to 6 of them fit.
    assert 2 <= len(ticks) <= 7
    step = ticks[1] - ticks[0]
    assert low - 1e-5 * step <= ticks[0] <= ticks[-1] <= low + span + 1e-5 * step
    mantissa = step / 10 ** math.floor(math.log10(step * (1 + 1e-6)))
    assert min(abs(mantissa - n) for n in (1, 2, 5, 10)) < 1e-3


def names_of(svg: str, anchor: str) -> list[str]:
    return re.findall(rf'text-anchor="{anchor}">([^<]+)</text>', svg)


def test_drawings_name_round_values() -> None:
    svg = draw_lines({"accuracy": [41.0, math.nan, 87.3]}, ["0", "1", "2"])
    assert names_of(svg, "end") == ["0", "20", "40", "60", "80"]
    assert names_of(svg, "middle") == ["0", "1", "2"]
    svg = draw_curves({"a": [(0.0, 3.1), (777.0, 2.3)]}, "tokens", "loss")
    assert names_of(svg, "end") == ["2.4", "2.6", "2.8", "3"]
    assert names_of(svg, "middle") == ["0", "200", "400", "600", "tokens"]


def test_the_curves_of_a_run_have_round_ticks() -> None:
    log: list[dict[str, Any]] = [
        {"tokens": 4096 * step, "loss": 10.0 / step} for step in range(1, 5000)
    ]
    log.append({"tokens": 4096 * 5000, "evaluation": {"mlm_loss": 2.5}})
    svg = draw_losses(log)
    assert names_of(svg, "end") == ["2", "4", "6", "8", "10"]
    assert names_of(svg, "middle") == ["0", "5M", "10M", "15M", "20M", "tokens"]
    assert svg.startswith('<svg xmlns="http://www.w3.org/2000/svg"')
    assert svg.count("<circle") == 1
    assert "polyline" not in draw_losses([])


def test_a_value_that_is_not_finite_leaves_a_gap_in_a_curve() -> None:
    points = [(1.0, 2.0), (2.0, float("nan")), (3.0, 4.0)]
    assert draw_curves({"loss": points}, "step", "loss").count("<circle") == 2
    nothing = draw_curves({"loss": [(1.0, float("nan"))]}, "step", "loss")
    assert "nan" not in nothing


def test_ticks_that_are_close_have_names_of_their_own() -> None:
    names = [name for _, name in round_ticks([2.302585091, 2.302585109])]
    assert len(set(names)) == len(names) > 1
    assert [name for _, name in round_ticks([-5e6, -1e6])] == ["-5M", "-4M", "-3M", "-2M", "-1M"]
