"""Every target names a case that exists, and missed targets are kept apart from unknown ones."""

from __future__ import annotations

import dataclasses
import re
from typing import TYPE_CHECKING

import pytest

from benchmarks.cases.ops.attention import HALF_PADDING
from benchmarks.measuring.case import Options
from benchmarks.registry import all_cases
from benchmarks.report.aims import Held, target_section
from benchmarks.report.aims import hold as hold_all
from benchmarks.report.page import Fold, Table
from benchmarks.targets import quantities as by
from benchmarks.targets.table import all_targets
from benchmarks.targets.target import Target
from benchmarks.tests.made_up import RESIDENT, lines

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from benchmarks.records.resident import Resident
    from benchmarks.targets.quantities import Run

CASE = "embedding/minilm-float32-short"


def hold(target: Target, runs: Sequence[Run], residents: Sequence[Resident] = ()) -> Held:
    """Hold a target where there is one device."""
    (found,) = hold_all(target, runs, residents)
    return found


FASTER = Target(
    group="g", what="w", wanted=">= 2x", at_least=2.0, case=CASE, quantity=by.times_best()
)


def test_every_target_is_answered_by_a_case_that_exists() -> None:
    known = {*all_cases(), *(f"dataset/minilm-{p}-sentences" for p in ("bfloat16", "int8"))}
    for target in all_targets():
        if target.quantity is None:
            answers = (target.unmeasured or None, target.long_run, target.front_door)
            assert sum(answer is not None for answer in answers) == 1
            assert not target.case
        else:
            assert target.case in known, target
            assert (target.at_least is None) != (target.at_most is None)


def test_no_two_targets_are_the_same() -> None:
    seen = [(t.group, t.what, t.wanted) for t in all_targets()]
    assert len(seen) == len(set(seen))


def test_reasons_hold_no_figures() -> None:
    for target in all_targets():
        words = re.sub(r"float32|bfloat16|int8", "", target.reason)
        assert not re.search(r"\d", words), target.reason


def test_a_target_is_met_missed_or_unknown() -> None:
    run = lines(CASE, 1.0, 2.0)
    assert hold(FASTER, [run]).state == "met"
    missed = hold(dataclasses.replace(FASTER, at_least=2.1, reason="it is so"), [run])
    assert (missed.state, missed.why) == ("missed", "it is so")
    assert hold(FASTER, []).state == "not measured"
    assert hold(dataclasses.replace(FASTER, isa="avx2"), [run]).state == "not measured"
    assert hold(dataclasses.replace(FASTER, threads=7), [run]).state == "not measured"
    on_gpu = hold(dataclasses.replace(FASTER, gpu="nvidia"), [run])
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
        by.microseconds_a_text: 100.0,
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


def test_every_machine_is_judged() -> None:
    quick = lines(CASE, 1.0, 3.0)
    slow = lines(CASE, 1.0, 1.5, device="slide-rule-1c", time_utc="2026-11-20T00:00:00+00:00")
    held = hold_all(FASTER, [slow, quick])
    assert [(one.state, one.where and one.where.device) for one in held] == [
        ("met", "abacus-2c"),
        ("missed", "slide-rule-1c"),
    ]
    older = [dataclasses.replace(r, time_utc="2026-11-19T00:00:00+00:00") for r in quick]
    assert len(hold_all(FASTER, [quick, older])) == 1
    assert [one.state for one in hold_all(FASTER, [quick, older])] == ["met"]


def test_rates_of_one_gpu_are_judged_on_no_other() -> None:
    rate = Target(
        group="g",
        what="w",
        wanted=">= 1",
        at_least=1.0,
        case=CASE,
        quantity=by.rate("tokens"),
        gpu="nvidia-h200",
    )
    assert hold(rate, [lines(CASE, 1.0, 2.0, device="nvidia-h200")]).state == "met"
    assert hold(rate, [lines(CASE, 1.0, 2.0, device="nvidia-h100")]).why == "no GPU has run it"
    rates = [t for t in all_targets() if t.gpu and t.quantity and "/s" in t.wanted]
    assert rates
    assert {target.gpu for target in rates} == {"nvidia-h200"}


def test_nothing_is_met_while_the_best_of_before_takes_no_part() -> None:
    earlier = lines(CASE, 1.0, 1.1, time_utc="2026-11-20T00:00:00+00:00")
    ours, best, usual, *rest = lines(CASE, 1.0, 1.1)
    gone = dataclasses.replace(best, p50_ms=None, status="skipped", reason="not installed")
    weak = [
        dataclasses.replace(r, best_peer=usual.candidate, ratio_to_best_peer=3.3)
        for r in (ours, gone, usual, *rest)
    ]
    assert hold(FASTER, [weak]).state == "met"
    found = hold(FASTER, [earlier, weak])
    assert found.state == "not measured"
    assert found.why == f"{best.candidate} took no part, unlike before, the best then among them"
    named = dataclasses.replace(FASTER, quantity=by.times_peer(usual.candidate))
    assert hold(named, [earlier, weak]).state == "met"
    assert [r.status for r in earlier if r.candidate == "absent"] == ["skipped"]
    assert hold(FASTER, [earlier]).why == "not known yet"


def test_a_long_run_is_judged_on_every_machine() -> None:
    target = Target(group="g", what="w", wanted="< 2 s", at_most=2.0, long_run=by.again)
    quick = dataclasses.replace(RESIDENT, again_seconds=1.0)
    assert hold(target, [], [quick]).state == "met"
    assert [one.state for one in hold_all(target, [], [quick, RESIDENT])] == ["met", "missed"]
    assert hold(target, []).state == "not measured"
    assert abs(RESIDENT.trend) < 0.01
    rising = dataclasses.replace(RESIDENT, mib=[float(number) for number in range(1000)])
    assert by.trend(rising).value > 0.4


def test_half_of_the_half_padded_batch_is_padding() -> None:
    assert sum(HALF_PADDING) / (len(HALF_PADDING) * max(HALF_PADDING)) == pytest.approx(
        0.5, abs=1e-3
    )


ANSWERED = sorted({t.case for t in all_targets() if t.case in all_cases()})


# At every size a model has the same candidates.
@pytest.mark.parametrize(
    "name",
    [
        # A vocabulary of 250,000 pieces loads in a second.
        pytest.param(name, marks=[pytest.mark.exhaustive] * name.startswith("tokenizer/xlmr-"))
        for name in ANSWERED
        if not name.startswith("embedding/bert")
    ],
)
def test_a_target_names_candidates_and_amounts_that_its_case_has(name: str, minilm: Path) -> None:
    assert minilm.is_dir()
    spec = all_cases()[name]
    if spec.unavailable():
        pytest.skip(str(spec.unavailable()))
    case = spec.make(Options(smoke=True))
    template = lines(name, 1.0, 2.0)[0]
    rates = {what: 1e3 * number for what, number in case.amounts.items()}
    rival = next(c.name for c in case.candidates if c.role == "peer")
    run = [
        dataclasses.replace(
            template,
            candidate=candidate.name,
            role=candidate.role,
            amounts=dict(case.amounts),
            throughput_per_s=rates,
            best_peer=rival,
        )
        for candidate in case.candidates
    ]
    for target in all_targets():
        if target.case == name:
            assert target.answer(run) is not None, target


def test_misses_come_first_and_are_marked() -> None:
    section = target_section([lines(CASE, 1.0, 1.01), lines("pretraining/tiny", 1.0, 9.0)])
    missed, met, unknown = section.blocks
    assert isinstance(missed, Table)
    assert {row[0] for row in missed.rows} == {"missed"}
    assert len(missed.marks) == len(missed.rows)
    assert isinstance(met, Fold)
    assert isinstance(unknown, Fold)
    assert unknown.title.startswith("Not measured yet")
