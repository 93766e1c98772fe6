"""The measuring function: the gate comes first, rounds interleave, reasons are kept."""

from __future__ import annotations

import os
import re
import sys
import time
from dataclasses import replace
from functools import partial
from typing import Any

import psutil
import pytest

from benchmarks.measuring import load, memory
from benchmarks.measuring.case import Candidate, Role
from benchmarks.measuring.measure import best_peer, measure
from benchmarks.measuring.runner import LocalRunner, describe
from benchmarks.measuring.timing import percentiles
from benchmarks.measuring.worker import WorkerRunner
from benchmarks.tests import fakes


def test_percentiles_of_known_samples() -> None:
    found = percentiles([5.0, 1.0, 4.0, 2.0, 3.0, 6.0])
    assert (found.p20, found.p50, found.p80) == pytest.approx((2.0, 3.5, 5.0))
    alone = percentiles([7.0])
    assert (alone.p20, alone.p50, alone.p80) == (7.0, 7.0, 7.0)


def test_candidates_are_timed_in_the_rotated_order() -> None:
    calls: list[str] = []

    def call(name: str) -> int:
        calls.append(name)
        return fakes.RIGHT

    names = "abc"
    candidates = [fakes.candidate(n, lambda n=n: call(n)) for n in names]  # type: ignore[misc]
    measure(fakes.case(*candidates), threads=1, rounds=5)
    turns = [name for i, name in enumerate(calls) if i == 0 or calls[i - 1] != name]
    # Warm-up, five rounds that rotate, and the call whose memory is measured; neighbours merge.
    rounds = "abc" + "bca" + "cab" + "abc" + "bca"
    expected = "abc" + rounds + "abc"
    collapsed = [n for i, n in enumerate(expected) if i == 0 or expected[i - 1] != n]
    assert turns == collapsed


def test_the_machine_s_ceiling_is_looked_at_before_the_rounds_and_after() -> None:
    happened: list[str] = []

    def work() -> int:
        happened.append("work")
        return fakes.RIGHT

    def ceiling() -> float:
        happened.append("look")
        return float(happened.count("look"))

    case = replace(fakes.case(fakes.candidate("a", work)), ceilings={"operations": ceiling})
    (measured,) = measure(case, threads=1, rounds=5)
    first, last = (place for place, what in enumerate(happened) if what == "look")
    assert "work" in happened[first:last]
    assert last == len(happened) - 1
    assert measured.ceilings == {"operations": 2.0}


def test_a_wrong_candidate_gets_no_time_but_its_figures() -> None:
    wrong, right = measure(
        fakes.case(fakes.candidate("wrong", lambda: 41), fakes.candidate("right")), threads=1
    )
    assert wrong.status == "gate failed"
    assert wrong.reason == "41 is not 42"
    assert wrong.samples == ()
    assert wrong.peak is None
    assert wrong.verdict is not None
    assert wrong.verdict.figures == {"found": 41.0}
    assert right.status == "measured"


def test_a_candidate_that_raises_does_not_end_the_others() -> None:
    def explode() -> int:
        raise RuntimeError("out of luck")

    calls = 0

    def explode_later() -> int:
        nonlocal calls
        calls += 1
        return fakes.RIGHT if calls < 4 else explode()

    candidates = [
        fakes.candidate("early", explode),
        fakes.candidate("late", explode_later),
        fakes.candidate("well"),
    ]
    early, late, well = measure(fakes.case(*candidates), threads=1)
    for broken in (early, late):
        assert broken.status == "failed"
        assert broken.reason == "RuntimeError: out of luck"
        assert broken.samples == ()
    assert well.status == "measured"


def test_few_rounds_are_refused_but_in_a_smoke_run() -> None:
    with pytest.raises(ValueError, match="at least 5"):
        measure(fakes.case(fakes.candidate("a")), threads=1, rounds=4)
    (found,) = measure(fakes.case(fakes.candidate("a")), threads=1, rounds=1, smoke=True)
    assert len(found.samples) == 1


def test_the_best_peer_is_the_quickest_that_passed() -> None:
    def slow() -> int:
        return sum(range(200_000)) and fakes.RIGHT

    measured = measure(
        fakes.case(
            fakes.candidate("ours", role="ours"),
            fakes.candidate("quick but wrong", lambda: 0),
            fakes.candidate("slow", slow),
            fakes.candidate("quick"),
        ),
        threads=1,
    )
    best = best_peer(measured)
    assert best is not None
    assert best.candidate == "quick"
    assert best_peer(measured[:2]) is None


def test_the_work_of_others_is_told_from_our_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(load, "snapshot", lambda: load.Snapshot(104.0, 58.0))
    assert load.other_cores(load.Snapshot(100.0, 56.0)) == 0.5
    assert load.other_cores(load.Snapshot(100.0, 59.0)) == 0.0
    assert load.other_cores(None) is None


@pytest.mark.slow
def test_the_time_of_a_child_is_our_own_while_it_runs_and_after() -> None:
    before = load.own_seconds()
    spinning = Candidate(name="spinning", role="peer", build=fakes.build_spinning)
    runner = WorkerRunner(spinning, {}, threads=1)
    while load.own_seconds() < before + 0.3:
        runner.warm_up()
    seen = load.own_seconds()
    runner.close()
    assert load.own_seconds() >= seen


def test_single_calls_are_timed_one_at_a_time_each_after_another() -> None:
    calls: list[int] = []

    def count() -> int:
        calls.append(0)
        return fakes.RIGHT

    case = replace(fakes.case(fakes.candidate("quick", count)), single=True)
    (found,) = measure(case, threads=1, rounds=100)
    assert {sample.num_calls for sample in found.samples} == {1}
    warm_up = 2
    assert len(calls) - warm_up in (200, 201)  # and one whose memory is measured
    assert found.wall_ms.p50 <= found.wall_ms.p99


@pytest.mark.parametrize("are_long", [False, True])
def test_no_slow_call_but_a_long_one_is_timed_right_after_one_of_another_candidate(
    are_long: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if are_long:
        monkeypatch.setattr("benchmarks.measuring.runner.LONG_MS", 1.0)
    calls: list[str] = []

    def slow(name: str) -> int:
        time.sleep(0.02)
        calls.append(name)
        return fakes.RIGHT

    candidates = [fakes.candidate(name, partial(slow, name)) for name in ("one", "two", "three")]
    found = measure(fakes.case(*candidates), threads=1)
    assert {sample.num_calls for m in found for sample in m.samples} == {1}
    rounds = calls[len(candidates) * 2 :][: 5 * len(candidates) * 2]
    assert (rounds[::2] == rounds[1::2]) == (not are_long)


def test_an_isolated_candidate_is_tuned_built_and_measured_in_its_own_process() -> None:
    tuned = Candidate(name="tuned", role="peer", build=fakes.build_tuned, tune=fakes.find_offset)
    untuned = Candidate(name="untuned", role="peer", build=fakes.build_tuned)
    good, bad = measure(fakes.case(tuned, untuned, isolated=True), threads=1)
    assert good.status == "measured"
    assert good.settings == {"offset": 7}
    assert good.peak is None or good.peak.of == "process"
    assert (bad.status, bad.reason) == ("gate failed", "36 is not 42")


def test_whoever_is_not_asked_stands_still_even_if_its_threads_spin() -> None:
    spinning = Candidate(name="spinning", role="peer", build=fakes.build_spinning)
    runner = WorkerRunner(spinning, {}, threads=1)
    try:
        assert runner.warm_up() == fakes.RIGHT
        process = psutil.Process(runner._worker._process.pid)
        before = process.cpu_times()
        time.sleep(0.2)
        still = process.cpu_times()
        moved = still.user + still.system - before.user - before.system
        # A processor counts whole ticks, and may count its last one after the process has stopped.
        tick_ms = 1e3 / os.sysconf("SC_CLK_TCK")
        assert round(1e3 * moved / tick_ms) <= (os.cpu_count() or 1)
    finally:
        runner.close()


def test_an_isolated_candidate_may_fail_or_die_and_leaves_no_path() -> None:
    failing = Candidate(name="failing", role="peer", build=fakes.build_that_fails)
    dying = Candidate(name="dying", role="peer", build=fakes.build_that_dies)
    failed, died = measure(fakes.case(failing, dying, isolated=True), threads=1)
    assert failed.reason == "FileNotFoundError: no weights in model.bin"
    assert died.reason == "its process ended with code 3"
    assert {failed.status, died.status} == {"failed"}


@pytest.mark.exhaustive
def test_an_isolated_peer_that_is_far_behind_is_left_out_unless_it_is_kept(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("benchmarks.measuring.measure.SLOW_MS", 100.0)

    def sleeper(name: str, role: Role, seconds: float, **options: Any) -> Candidate:
        build = partial(fakes.build_slow, seconds=seconds)
        return Candidate(name=name, role=role, build=build, **options)

    measured = measure(
        fakes.case(
            sleeper("ours", "ours", 0.3),
            sleeper("quick", "peer", 0.03),
            sleeper("kept", "peer", 0.3, keep_slow=True),
            sleeper("slow", "peer", 0.3),
            isolated=True,
        ),
        threads=1,
    )
    assert [m.status for m in measured] == ["measured"] * 3 + ["left out"]
    assert re.match(r"a call took 0\.\d s in the first round", str(measured[-1].reason))
    assert measured[-1].samples == ()


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_peak_memory_is_seen_in_both_kinds_of_process() -> None:
    light = Candidate(name="light", role="peer", build=fakes.build_right)
    heavy = Candidate(name="heavy", role="peer", build=fakes.build_large)
    small, large = (m.peak for m in measure(fakes.case(light, heavy, isolated=True), threads=1))
    assert small is not None
    assert large is not None
    assert 50 < large.mib - small.mib < 90
    here = memory.call_peak(fakes.build_large(), "cpu")
    if here is not None:  # where /proc/self/clear_refs may be written
        assert here.of == "call"
        assert 50 < here.mib < 90


def test_reasons_are_one_line_without_folders() -> None:
    error = OSError("cannot open\n /home/someone/model-v1.0/weights.bin or ./x")
    assert describe(error) == "OSError: cannot open weights.bin or ./x"
    assert describe(KeyError()) == "KeyError"
    for spent in (MemoryError(), RuntimeError("can't allocate memory: 8 bytes.")):
        assert describe(spent) == "out of memory"


def test_a_call_that_ends_on_the_host_is_timed_there() -> None:
    # A GPU's clock would need a GPU.
    runner = LocalRunner(fakes.candidate("ours"), {}, "cuda", host_time=True)
    runner.warm_up()
    assert runner.sample().wall_ms > 0.0
