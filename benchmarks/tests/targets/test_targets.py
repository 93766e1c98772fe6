"""Every target names a case that exists, and missed targets are kept apart from unknown ones."""

from __future__ import annotations

import dataclasses
import re
from typing import TYPE_CHECKING

import pytest

from benchmarks.cases.ops.attention import HALF_PADDING
from benchmarks.measuring.case import Options
from benchmarks.registry import all_cases
from benchmarks.report.targets import Held, hold, target_lines
from benchmarks.targets.table import QUANTITIES, Target, all_targets
from benchmarks.tests.made_up import lines

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from benchmarks.records.runs import Run

CASE = "embedding/minilm-float32-short"
FASTER = Target(
    group="g", what="w", wanted=">= 2x", at_least=2.0, case=CASE, answered_by="times_peer"
)


def hold_alone(target: Target, runs: Sequence[Run]) -> Held:
    """Hold a target where there is one device."""
    (held,) = hold(target, runs)
    return held


def test_every_target_is_answered_by_a_case_that_exists_or_says_why_not() -> None:
    known = all_cases()
    targets = all_targets()
    assert len({(t.group, t.what, t.wanted) for t in targets}) == len(targets)
    for target in targets:
        assert bool(target.answered_by) != bool(target.unmeasured), target
        if target.answered_by:
            assert target.quantity in QUANTITIES, target
            assert (target.at_least is None) != (target.at_most is None), target
            assert target.case in known, target


def test_reasons_hold_no_figures() -> None:
    for target in all_targets():
        words = re.sub(r"float32|bfloat16|int8", "", target.reason)
        assert not re.search(r"\d", words), target.reason


def test_a_target_is_met_missed_or_unknown() -> None:
    run = lines(CASE, 1.0, 2.0)
    assert hold_alone(FASTER, [run]).state == "met"
    missed = hold_alone(dataclasses.replace(FASTER, at_least=2.1, reason="it is so"), [run])
    assert (missed.state, missed.why) == ("missed", "it is so")
    assert hold_alone(FASTER, []).state == "not measured"
    for changes in ({"isa": "avx2"}, {"threads": 7}, {"gpu": "nvidia"}):
        unlike = dataclasses.replace(FASTER, **changes)
        assert hold_alone(unlike, [run]).state == "not measured"
    of_gpu = dataclasses.replace(FASTER, gpu="nvidia-h200")
    assert hold_alone(of_gpu, [lines(CASE, 1.0, 2.0, device="nvidia-h200")]).state == "met"
    assert hold_alone(of_gpu, [lines(CASE, 1.0, 2.0, device="nvidia-h100")]).state != "met"
    busy = [dataclasses.replace(r, other_cores=0.5) for r in run]
    assert hold_alone(FASTER, [busy]).why == "measured on a busy machine"


def test_a_wrong_result_of_ours_is_a_miss_and_an_absent_peer_is_not() -> None:
    run = lines(CASE, 1.0, 2.0)
    wrong = dataclasses.replace(run[0], p50_ms=None, status="gate failed", reason="too far off")
    held = hold_alone(FASTER, [[wrong, *run[1:]]])
    assert (held.state, held.why) == ("missed", "too far off")
    absent = dataclasses.replace(FASTER, answered_by="times_peer(absent)")
    assert hold_alone(absent, [run]).state == "not measured"


@pytest.mark.parametrize(
    ("answered_by", "value"),
    {
        "times_peer": 2.0,
        "times_peer(sentence-transformers)": 6.0,
        "time_over": 0.5,
        "time_over(sentence-transformers)": 1 / 6,
        "share_of_limit": 0.1,
        "microseconds_a_text": 100.0,
        "memory_over": 80 / 99.5,
        "memory_over(sentence-transformers)": 80 / 1234,
        "rate(tokens)": 1e5,
        "gate_figure(min_cosine)": 0.9999995,
    }.items(),
)
def test_quantities_of_a_run_have_the_right_value(answered_by: str, value: float) -> None:
    run = lines(CASE, 1.0, 2.0)
    target = dataclasses.replace(FASTER, answered_by=answered_by)
    reached = target.answer(run)
    assert reached is not None
    assert reached.value == pytest.approx(value)
    assert target.answer([r for r in run if r.role == "peer"]) is None
    if answered_by == "times_peer":
        assert reached.limit == "10%; it permits 20.0x"


def test_every_machine_is_judged_by_its_newest_run() -> None:
    quick = lines(CASE, 1.0, 3.0)
    slow = lines(CASE, 1.0, 1.5, device="slide-rule-1c", time_utc="2026-11-20T00:00:00+00:00")
    states = [(held.state, held.device) for held in hold(FASTER, [slow, quick])]
    assert states == [("met", "abacus-2c"), ("missed", "slide-rule-1c")]
    older = lines(CASE, 1.0, 1.5, time_utc="2026-11-19T00:00:00+00:00")
    assert hold_alone(FASTER, [quick, older]).state == "met"


def test_nothing_is_met_while_the_best_of_before_takes_no_part() -> None:
    earlier = lines(CASE, 1.0, 1.1, time_utc="2026-11-20T00:00:00+00:00")
    ours, best, usual, *rest = lines(CASE, 1.0, 1.1)
    gone = dataclasses.replace(best, p50_ms=None, status="skipped", reason="not installed")
    weak = [
        dataclasses.replace(r, best_peer=usual.candidate, ratio_to_best_peer=3.3)
        for r in (ours, gone, usual, *rest)
    ]
    assert hold_alone(FASTER, [weak]).state == "met"
    held = hold_alone(FASTER, [earlier, weak])
    assert held.state == "not measured"
    assert held.why == f"{best.candidate} took no part, unlike before, the best then among them"
    named = dataclasses.replace(FASTER, answered_by=f"times_peer({usual.candidate})")
    assert hold_alone(named, [earlier, weak]).state == "met"


def test_half_of_the_half_padded_batch_is_padding() -> None:
    share = sum(HALF_PADDING) / (len(HALF_PADDING) * max(HALF_PADDING))
    assert share == pytest.approx(0.5, abs=1e-3)


ANSWERED = sorted({t.case for t in all_targets() if t.case in all_cases()})


SLOW = ("embedding/", "pretraining", "finetuning", "tokenizer/", "training_graphs/")


# At every size a model has the same candidates.
@pytest.mark.parametrize(
    "name",
    [
        # The cases of models and vocabularies take seconds to make.
        pytest.param(name, marks=[pytest.mark.exhaustive] * name.startswith(SLOW))
        for name in ANSWERED
        if not name.startswith("embedding/bert")
    ],
)
def test_a_target_names_candidates_and_amounts_that_its_case_has(name: str, minilm: Path) -> None:
    assert minilm.is_dir()
    spec = all_cases()[name]
    if spec.unavailable():
        pytest.skip(str(spec.unavailable()))
    case = spec.case(Options(smoke=True))
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
            gate={"mean_cosine": 1.0, "min_cosine": 1.0},
            best_peer=rival,
        )
        for candidate in case.candidates
    ]
    for target in all_targets():
        if target.case == name:
            assert target.answer(run) is not None, target


def test_misses_come_first() -> None:
    page = "\n".join(target_lines([lines(CASE, 1.0, 1.01), lines("pretraining/tiny", 1.0, 9.0)]))
    assert page.index("### Missed: ") < page.index("### Met: ") < page.index("### Not measured: ")
    assert "| **missed** |" in page
