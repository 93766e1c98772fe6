"""The targets: every one names a case that exists, and misses are told from what is unknown."""

from __future__ import annotations

import dataclasses
import re

from benchmarks import quantities as by
from benchmarks.registry import all_cases
from benchmarks.report.aims import hold, target_section
from benchmarks.report.page import Fold, Table
from benchmarks.target import Target
from benchmarks.targets import all_targets
from tests.benchmarks.test_report import RESIDENT, lines
from tests.conftest import ROOT

CASE = "embedding/minilm-float32-short"
FASTER = Target(
    group="g", what="w", wanted=">= 2x", at_least=2.0, case=CASE, quantity=by.times_best()
)


def test_every_target_is_answered_by_a_case_that_exists() -> None:
    known = {*all_cases(), *(f"dataset/minilm-{p}-sentences" for p in ("bfloat16", "int8"))}
    for target in all_targets():
        if target.quantity is None:
            assert target.unmeasured or target.long_run is not None
            assert not target.case
        else:
            assert target.case in known, target
            assert (target.at_least is None) != (target.at_most is None)


def test_no_two_targets_are_the_same() -> None:
    seen = [(t.group, t.what, t.wanted) for t in all_targets()]
    assert len(seen) == len(set(seen))


def test_reasons_hold_no_figures_and_name_entries_that_exist() -> None:
    log = (ROOT / "benchmarks" / "LOG.md").read_text("utf-8")
    for target in all_targets():
        dates = re.findall(r"\d{4}-\d\d-\d\d", target.reason)
        assert all(f"## {date}" in log for date in dates), target.reason
        words = re.sub(r"LOG\.md, \d{4}-\d\d-\d\d|float32|bfloat16|int8", "", target.reason)
        assert not re.search(r"\d", words), target.reason


def test_a_target_is_met_missed_or_unknown() -> None:
    run = lines(CASE, 1.0, 2.0)
    assert hold(FASTER, [run]).state == "met"
    missed = hold(dataclasses.replace(FASTER, at_least=2.1, reason="it is so"), [run])
    assert (missed.state, missed.why) == ("missed", "it is so")
    assert hold(FASTER, []).state == "not measured"
    assert hold(dataclasses.replace(FASTER, isa="avx2"), [run]).state == "not measured"
    assert hold(dataclasses.replace(FASTER, threads=7), [run]).state == "not measured"
    on_gpu = hold(dataclasses.replace(FASTER, on_gpu=True), [run])
    assert (on_gpu.state, on_gpu.why) == ("not measured", "no GPU has run it")


def test_a_wrong_result_of_ours_is_a_miss_and_an_absent_peer_is_not() -> None:
    run = lines(CASE, 1.0, 2.0)
    wrong = dataclasses.replace(run[0], p50_ms=None, status="gate failed", reason="too far off")
    found = hold(FASTER, [[wrong, *run[1:]]])
    assert (found.state, found.why) == ("missed", "too far off")
    absent = dataclasses.replace(FASTER, quantity=by.times_peer("absent"))
    assert hold(absent, [run]).state == "not measured"


def test_a_busy_machine_is_told() -> None:
    run = [dataclasses.replace(r, other_cores=0.5) for r in lines(CASE, 1.0, 2.0)]
    assert hold(FASTER, [run]).why == "measured on a busy machine"


def test_quantities_read_what_they_say() -> None:
    run = lines(CASE, 1.0, 2.0)
    values = {
        by.times_best(): 2.0,
        by.times_peer("sentence-transformers"): 6.0,
        by.time_over_best(): 0.5,
        by.time_over_best("sentence-transformers"): 1 / 6,
        by.times_own("sentence-transformers"): 6.0,
        by.share_of_limit: 0.1,
        by.milliseconds(): 1.0,
        by.microseconds_a_text: 100.0,
        by.peak_mb(): 80 * 2**20 / 1e6,
        by.memory_over_best: 80 / 99.5,
        by.memory_over("sentence-transformers"): 80 / 1234,
        by.rate("tokens"): 1e5,
        by.gate_figure("min_cosine"): 0.9999995,
    }
    for quantity, expected in values.items():
        reached = quantity(run)
        assert reached is not None
        assert abs(reached.value - expected) < 1e-9 * abs(expected)
        assert quantity([r for r in run if r.role == "peer"]) is None


def test_a_ratio_says_what_the_limit_permits() -> None:
    reached = by.times_best()(lines(CASE, 1.0, 2.0))
    assert reached is not None
    assert reached.limit == "10%; it permits 20.0x"


def test_a_long_run_is_judged_by_the_machine_that_did_worst() -> None:
    target = Target(group="g", what="w", wanted="< 2 s", at_most=2.0, long_run=by.again)
    quick = dataclasses.replace(RESIDENT, again_seconds=1.0)
    assert hold(target, [], [quick]).state == "met"
    assert hold(target, [], [quick, RESIDENT]).state == "missed"
    assert hold(target, []).state == "not measured"
    assert abs(RESIDENT.trend) < 0.01
    rising = dataclasses.replace(RESIDENT, mib=[float(number) for number in range(1000)])
    assert by.trend(rising).value > 0.4


def test_misses_come_first_and_are_marked() -> None:
    section = target_section([lines(CASE, 1.0, 1.01), lines("pretraining/tiny", 1.0, 9.0)])
    missed, met, unknown = section.blocks
    assert isinstance(missed, Table)
    assert {row[0] for row in missed.rows} == {"missed"}
    assert len(missed.marks) == len(missed.rows)
    assert isinstance(met, Fold)
    assert isinstance(unknown, Fold)
    assert unknown.title.startswith("Not measured yet")
