"""The layers of tests: who is in which, which cases are chosen, and what holds ``make check``."""

from __future__ import annotations

import subprocess
import sys
from itertools import combinations, product
from typing import cast

import pytest

from tests import ROOT
from tests.check import run
from tests.layers import EXHAUSTIVE, SLOW, ProcessGuard, is_left_out
from tests.selection import all_pairs, covering, select, unless

CASES = [
    {"size": size, "dtype": dtype, "by": by, "bias": bias, "device": "cpu"}
    for size, dtype, by, bias in product(range(9), range(4), range(3), range(2))
    # A type that one of them refuses.
    if (dtype, by) != (3, 2)
]


class InFolderCalledGpu:
    """A test whose checkout is called gpu: pytest makes every parent's name a keyword."""

    keywords = dict.fromkeys(("gpu", "slow", "exhaustive"), True)

    def get_closest_marker(self, _name: str) -> None:
        return None

    def iter_markers(self, _name: str) -> tuple[()]:
        return ()


def test_marks_are_not_read_from_folders_names() -> None:
    item = cast("pytest.Function", InFolderCalledGpu())
    assert select([item]) == [item]
    guard = ProcessGuard()
    with guard.around(item):
        assert guard.is_on


def test_all_pairs_that_occur_are_covered_by_few_cases() -> None:
    chosen = all_pairs(CASES)
    assert chosen == all_pairs(CASES)
    assert 36 <= len(chosen) <= 45 < len(CASES)
    for first, second in combinations(CASES[0], 2):
        pairs = {(case[first], case[second]) for case in CASES}
        assert {(CASES[n][first], CASES[n][second]) for n in chosen} == pairs


def test_a_test_of_two_axes_keeps_every_case() -> None:
    assert all_pairs([{"a": n % 3, "b": n // 3, "c": 0} for n in range(9)]) == list(range(9))
    assert all_pairs([]) == []


def test_rows_that_cover_nothing_more_are_for_the_long_run() -> None:
    table = list(product(range(4), "abc"))
    cases = covering(table, lambda number, letter: [number, (number % 2, letter)])
    assert [case.values for case in cases] == table
    chosen = [case.values for case in cases if not case.marks]
    assert len(chosen) == 6
    assert {number for number, _ in chosen} == {0, 1, 2, 3}


@unless(lambda size, by: "too many" if size == 2 and by == "triton" else None)
@pytest.mark.parametrize("size", [1, 2])
@pytest.mark.parametrize("by", ["aten", "triton"])
def test_a_refused_case_is_not_generated(size: int, by: str) -> None:
    assert (size, by) != (2, "triton")


@pytest.mark.parametrize("place", [*SLOW, *EXHAUSTIVE])
def test_every_place_of_a_layer_exists(place: str) -> None:
    assert (ROOT / place).exists(), "it was moved: name its new place in tests/layers.py"


def test_a_place_that_is_left_out_is_not_imported() -> None:
    place = ROOT / SLOW[0]
    assert is_left_out(place, "not slow and not exhaustive")
    assert is_left_out(place / "test_any.py", "not slow")
    assert not is_left_out(place, "not exhaustive")
    assert not is_left_out(place, "")
    assert is_left_out(ROOT / EXHAUSTIVE[0], "not exhaustive")


def test_a_unit_test_that_starts_a_process_fails(request: pytest.FixtureRequest) -> None:
    guard = ProcessGuard()
    with guard.around(request.node), pytest.raises(pytest.fail.Exception, match="marked slow"):
        subprocess.Popen([sys.executable, "-c", ""])


@pytest.mark.slow
def test_a_check_fails_where_a_part_of_it_does_or_it_takes_long(
    capfd: pytest.CaptureFixture[str],
) -> None:
    passing, failing = [sys.executable, "-c", ""], [sys.executable, "-c", "raise SystemExit(3)"]
    assert run(passing, (*passing,)) == 0
    assert "passed" in capfd.readouterr().out
    assert run(failing, (*failing,)) == 1
    assert "lint fails; unit tests fail" in capfd.readouterr().out
    assert run(passing, (*passing,), limit=0.0) == 1
    assert "it may take 0 s" in capfd.readouterr().out
