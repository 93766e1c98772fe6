"""The gates let right results pass and catch wrong ones."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from benchmarks.cases.ops.layer_norm import make_work
from benchmarks.jobs.gates import CosineGate
from benchmarks.jobs.op_case import BudgetGate, make_shape
from benchmarks.measuring.case import Options, Verdict


def cosine_gate(precision: str = "float32") -> tuple[CosineGate, np.ndarray]:
    vectors = np.random.default_rng(0).normal(size=(10, 64))
    rows = [7, 0, 3]
    return CosineGate(truth=vectors[rows], rows=rows, num_rows=10, precision=precision), vectors


def test_rounded_vectors_pass_and_report_their_cosines() -> None:
    gate, vectors = cosine_gate()
    verdict = gate(vectors.astype(np.float32))
    assert verdict.passed
    assert verdict.figures["min_cosine"] == pytest.approx(1.0, abs=1e-12)


@pytest.mark.parametrize("fault", ["shape", "order", "noise", "nan elsewhere", "zero"])
def test_wrong_vectors_fail(fault: str) -> None:
    gate, vectors = cosine_gate()
    wrong = {
        "shape": vectors[:9],
        "order": vectors[::-1],
        "noise": vectors * (1 + 0.01 * np.sign(vectors[::-1])),
        "nan elsewhere": np.where(np.arange(10)[:, None] == 5, np.nan, vectors),
        "zero": np.zeros_like(vectors),
    }[fault]
    verdict = gate(wrong)
    assert not verdict.passed
    assert verdict.reason


def test_a_precision_class_asks_for_its_own_quality() -> None:
    gate, vectors = cosine_gate("bfloat16")
    rounded = torch.from_numpy(vectors).bfloat16().float().numpy()
    assert gate(rounded).passed
    assert not cosine_gate("float32")[0](rounded).passed


def judge_layer_norm(spoil: float) -> Verdict:
    shape = make_shape(Options(smoke=True), equal=False)
    work = make_work(shape)
    truth = work.ours("reference", **{n: t.double() for n, t in work.inputs.items()})
    eager = work.eager(**work.inputs)
    gate = BudgetGate(
        truth={"output": truth}, eager={"output": eager}, inputs=work.inputs, terms=work.terms
    )
    return gate({"output": eager + spoil})


def test_the_error_budget_is_kept_or_named() -> None:
    assert judge_layer_norm(0.0).passed
    verdict = judge_layer_norm(1e-3)
    assert not verdict.passed
    assert verdict.figures["share_of_error_budget"] > 1.0
    assert verdict.reason is not None
    assert verdict.reason.startswith("output is ")
    assert not judge_layer_norm(float("nan")).passed
