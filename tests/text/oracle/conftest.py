"""The code points that tests go through: those that are assigned, or all there are."""

from __future__ import annotations

import pytest

from tests.text.strings import SCALARS

# All that is assigned, and one in 61 of the rest: unassigned planes and private use.
ASSIGNED = [code for code in SCALARS if code < 0x33480 or 0xE0000 <= code < 0xE0200]
SAMPLE = sorted({*ASSIGNED, *SCALARS[::61]})


@pytest.fixture(
    params=[
        pytest.param(SAMPLE, id="assigned"),
        pytest.param(SCALARS, id="all", marks=pytest.mark.exhaustive),
    ]
)
def codes(request: pytest.FixtureRequest) -> list[int]:
    """Give the assigned code points; in the full run all of them once more."""
    given: list[int] = request.param
    return given
