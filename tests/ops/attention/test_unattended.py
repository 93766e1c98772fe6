"""Attention to leading rows alone: the trailing rows of a sequence attend, and are not seen."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import pytest
import torch
from torch import Tensor

from encoder_engine import ops
from encoder_engine.ops.attention import AttentionFacts
from encoder_engine.packing import Sequences
from tests.ops.attention.cases import AttentionCase
from tests.ops.cases import implementations, refusal
from tests.ops.compare import compare, compare_outputs
from tests.selection import unless

CASES = [([9, 40, 3], [4, 30, 0]), ([64, 33], [40, 31]), ([4], [3]), ([5, 5], [0, 0])]
TERMS = {
    "plain": AttentionCase(num_unattended=()),
    "causal": AttentionCase(num_unattended=(), causal=True),
    "slopes": AttentionCase(num_unattended=(), slopes=True),
    "bias": AttentionCase(num_unattended=(), bias_reach=40),
    "positions": AttentionCase(num_unattended=(), reach_of_vectors=9, num_buckets=6),
    # Trailing rows are farther from keys than any two keys are from each other.
    "far positions": AttentionCase(num_unattended=(), reach_of_vectors=70),
}


def refused(implementation: str, term: str, has_gradients: bool, **_: object) -> str | None:
    facts = AttentionFacts(requires_grad=has_gradients, head_dim=16, terms=TERMS[term].terms)
    return refusal("attention", implementation, facts)


@unless(refused)
@pytest.mark.parametrize("implementation", implementations("attention"))
@pytest.mark.parametrize("has_gradients", [True, False], ids=["gradients", "inference"])
@pytest.mark.parametrize("term", TERMS)
@pytest.mark.parametrize(("lengths", "unattended"), CASES, ids=str)
def test_trailing_rows_are_keys_of_none(
    lengths: list[int],
    unattended: list[int],
    term: str,
    implementation: str,
    has_gradients: bool,
) -> None:
    case = replace(TERMS[term], num_unattended=tuple(unattended))
    layout = Sequences.from_lengths(lengths, device="cpu")
    num_rows = sum(lengths)
    check = compare if has_gradients else compare_outputs
    check(
        case.attend(layout, torch.float32, implementation),
        partial(case.eager, layout=layout),
        partial(case.eager, layout=layout),
        case.inputs(num_rows, torch.float32, "cpu"),
        terms=max(lengths) * (num_rows if term not in ("plain", "causal", "slopes") else 1),
    )


def refused_in_a_trace(implementation: str, term: str) -> str | None:
    facts = AttentionFacts(requires_grad=True, transformed=True, terms=TERMS[term].terms)
    return refusal("attention", implementation, facts)


@unless(refused_in_a_trace)
@pytest.mark.parametrize("implementation", implementations("attention"))
@pytest.mark.parametrize("term", [pytest.param("plain", marks=pytest.mark.exhaustive), "causal"])
def test_trailing_rows_are_keys_of_none_in_a_graph(term: str, implementation: str) -> None:
    case = replace(TERMS[term], num_unattended=(4, 30, 0))
    layout = Sequences.from_lengths([9, 40, 3], device="cpu")
    rows = case.arguments(layout, torch.float32)["query_rows"]

    def attend(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        return ops.attention(
            *(query, key, value, rows.sequences),
            query_rows=rows,
            causal=case.causal,
            implementation=implementation,
        )

    torch.compiler.reset()
    compare(
        torch.compile(attend, backend="aot_eager", fullgraph=True),
        partial(case.eager, layout=layout),
        partial(case.eager, layout=layout),
        case.inputs(52, torch.float32, "cpu"),
        terms=40,
    )
