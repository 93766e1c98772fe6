"""Two commits compared: a slowdown is named, noise is not, unlike work is never mixed."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from benchmarks.records.compare import bootstrap, compare
from benchmarks.report.tables import comparison_row
from benchmarks.tests.made_up import TEMPLATE

if TYPE_CHECKING:
    from benchmarks.records.results import Result


def result(commit: str, samples_ms: list[float], **fields: Any) -> Result:
    """Make a result of the given rounds, of a run of its own for each commit."""
    fields = {"commit": commit, "run": commit, "samples_ms": samples_ms, **fields}
    return dataclasses.replace(TEMPLATE, **fields)


def noisy(scale: float, seed: int) -> list[float]:
    """Draw rounds that scatter by 1 %."""
    drawn = np.random.default_rng(seed).normal(scale, 0.01 * scale, size=9)
    return [float(ms) for ms in drawn]


def several(commit: str, scale: float, number: int = 5) -> list[Result]:
    """Make runs of a commit, noise within each."""
    seeds = range(number)
    return [result(commit, noisy(scale, hash_of(commit, n)), run=f"{commit}{n}") for n in seeds]


def hash_of(commit: str, number: int) -> int:
    """Give unlike noise to unlike commits."""
    return 100 * sum(commit.encode()) + number


def test_a_tenth_slower_is_named_and_noise_is_not() -> None:
    results = [*several("base", 100), *several("same", 100)]
    results += [*several("slow", 110), *several("fast", 90)]
    for head, change in (("same", "same"), ("slow", "slower"), ("fast", "faster")):
        (comparison,) = compare(results, "base", head)
        assert (comparison.change, comparison.num_runs) == (change, (5, 5))
        assert comparison.low <= comparison.ratio <= comparison.high


def test_of_too_few_runs_nothing_is_named() -> None:
    results = [*several("base", 100), *several("slow", 150, 2)]
    (comparison,) = compare(results, "base", "slow")
    assert comparison.change == "too few runs"
    assert comparison.low > 1.4
    cells = comparison_row(comparison)
    assert cells[3:5] == ["5, 2", "nobody"]
    assert cells[-1] == "too few runs"


def test_the_interval_knows_that_runs_differ_more_than_rounds() -> None:
    old, older, new, newer = (np.full(5, ms) for ms in (10.0, 12.0, 11.0, 12.5))
    assert bootstrap([old], [new]) == pytest.approx((1.1, 1.1))
    low, high = bootstrap([old, older], [new, newer])
    assert low < 1.0 < high


def test_results_of_other_inputs_are_never_compared() -> None:
    results = [result("base", [1.0] * 5), result("head", [2.0] * 5, fingerprint="other")]
    assert compare(results, "base", "head") == []


def test_changed_trees_of_one_commit_are_told_apart_by_their_source() -> None:
    before, after = (
        dataclasses.replace(result("base", [ms] * 5), source=source, dirty=dirty)
        for ms, source, dirty in ((1.0, "aaaa", False), (2.0, "bbbb", True))
    )
    (comparison,) = compare([before, after], "aaaa", "bbbb")
    assert comparison.ratio == 2.0
    (comparison,) = compare([before, after], "base", "bbbb")
    assert comparison.num_runs == (1, 1)
    with pytest.raises(ValueError, match="measured were: bbbb"):
        compare([after], "base", "bbbb")


def test_a_commit_without_results_lists_those_that_have_some() -> None:
    with pytest.raises(ValueError, match="measured were: base"):
        compare([result("base", [1.0] * 5)], "base", "gone")


def test_a_slow_hour_of_the_machine_is_seen_by_the_peers_and_is_no_change() -> None:
    results = []
    for number in range(5):
        for commit, pace, own in (("base", 1.0, 1.0), ("hour", 1.3, 1.0), ("slow", 1.3, 1.1)):
            run = f"{commit}{number}"
            ours = noisy(100 * pace * own, number)
            results.append(result(commit, ours, run=run))
            for peer, ms in (("first", 300), ("second", 250)):
                scattered = noisy(ms * pace, number + 9)
                of_peer = {"run": run, "candidate": peer, "role": "peer"}
                results.append(result(commit, scattered, **of_peer))
    for head, change in (("hour", "same"), ("slow", "slower")):
        (comparison,) = compare(results, "base", head)
        assert (comparison.change, comparison.num_paced) == (change, 2)


def test_a_peer_of_another_version_tells_nothing_of_the_pace() -> None:
    results = []
    for commit, version, ms in (("base", "1", 10.0), ("head", "2", 20.0)):
        versions = {"versions": {"peer": version}}
        results.append(result(commit, [1.0] * 5, **versions))
        results.append(result(commit, [ms] * 5, candidate="peer", role="peer", **versions))
    (comparison,) = compare(results, "base", "head")
    assert (comparison.ratio, comparison.num_paced) == (1.0, 0)
