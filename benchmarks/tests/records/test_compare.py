"""Two commits compared: a slowdown is named, noise is not, unlike work is never mixed."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

import pytest

from benchmarks.records.compare import compare
from benchmarks.report.tables import comparison_row
from benchmarks.tests.made_up import TEMPLATE

if TYPE_CHECKING:
    from benchmarks.records.results import Result

# A run's speed by itself.
NOISE = (1.0, 1.01, 0.99, 1.005, 0.995)


def result(commit: str, ms: float, **fields: Any) -> Result:
    """Make a result of five rounds, of a run of its own for each commit."""
    fields = {"commit": commit, "run": commit, "samples_ms": [ms] * 5, **fields}
    return dataclasses.replace(TEMPLATE, **fields)


def several(commit: str, ms: float, number: int = 5) -> list[Result]:
    """Make runs of a commit, which scatter by 1 %."""
    return [result(commit, ms * NOISE[n], run=f"{commit}{n}") for n in range(number)]


def test_a_tenth_slower_is_named_and_noise_is_not() -> None:
    results = [*several("base", 100), *several("same", 100.5)]
    results += [*several("slow", 110), *several("fast", 90)]
    for head, change in (("same", "same"), ("slow", "slower"), ("fast", "faster")):
        (comparison,) = compare(results, "base", head)
        assert (comparison.change, len(comparison.base_ms)) == (change, 5)
    odd = [*several("odd", 110, 4), result("odd", 100, run="odd4")]
    assert compare([*results, *odd], "base", "odd")[0].change == "same"


def test_of_too_few_runs_nothing_is_named() -> None:
    (comparison,) = compare([*several("base", 100), *several("slow", 150, 2)], "base", "slow")
    assert comparison.change == "too few runs"
    cells = comparison_row(comparison)
    assert cells[3:5] == ["5, 2", "nobody"]
    assert cells[-1] == "too few runs"


def test_results_of_other_inputs_are_never_compared() -> None:
    results = [result("base", 1.0), result("head", 2.0, fingerprint="other")]
    assert compare(results, "base", "head") == []


def test_changed_trees_of_one_commit_are_told_apart_by_their_source() -> None:
    before = result("base", 1.0, source="aaaa")
    after = result("base", 2.0, source="bbbb", dirty=True)
    for base in ("aaaa", "base"):
        assert compare([before, after], base, "bbbb")[0].ratio == 2.0
    with pytest.raises(ValueError, match="measured were: bbbb"):
        compare([after], "base", "bbbb")


@pytest.mark.parametrize(("version", "num_paced"), [("1", 1), ("2", 0)])
def test_the_peers_show_a_slow_hour_of_the_machine(version: str, num_paced: int) -> None:
    results = []
    for n, noise in enumerate(NOISE):
        for commit, pace in (("base", 1.0), ("head", 1.3)):
            # A peer of another version tells nothing of the pace.
            versions = {"peer": version if commit == "head" else "1"}
            of_run: dict[str, Any] = {"run": f"{commit}{n}", "versions": versions}
            results.append(result(commit, 100 * pace * noise, **of_run))
            peer = {"candidate": "peer", "role": "peer", **of_run}
            results.append(result(commit, 300 * pace * noise, **peer))
    (comparison,) = compare(results, "base", "head")
    assert comparison.num_paced == num_paced
    assert comparison.change == ("same" if num_paced else "slower")
