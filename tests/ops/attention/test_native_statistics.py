"""Statistics of attention by the C++ extension: budget, states, offsets, threads, memory."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest
import torch

from encoder_engine import ops
from encoder_engine.ops.attention import AttentionFacts
from tests.ops.attention.cases import AttentionCase
from tests.ops.cases import dtype_id, refusal, rows, sequences, skip_if_refused
from tests.ops.generated import Case, hold_to_budget
from tests.selection import unless

DTYPES = [torch.float32, torch.bfloat16]
# Several blocks of queries and of keys on every instruction set, and less than one.
LENGTHS = [1, 300, 0, 17, 99]
MOST = 900  # tokens of a call
OPTIONS: dict[str, Any] = {
    "lengths": LENGTHS,
    "key_heads": 2,
    "group": 1,
    "head_dim": 24,
    "scale": None,
    "window": None,
    "causal": False,
    "slopes": False,
    "bias_reach": None,
    "reach_of_vectors": None,
    "nth_is_global": None,
}
TERMS: dict[str, dict[str, Any]] = {
    "none": {},
    "negative scale": {"scale": -0.3},
    "grouped heads": {"group": 3},
    "window": {"window": 40},
    "itself alone": {"window": 0},
    "causal": {"causal": True},
    "slopes": {"slopes": True, "bias_reach": 9},
    "global rows": {"window": 9, "nth_is_global": 7},
    "neighbours are global": {"window": 0, "nth_is_global": 2},
    "vectors": {"reach_of_vectors": 30},
}


def facts(dtype: torch.dtype) -> AttentionFacts:
    return AttentionFacts(dtype=dtype_id(dtype))


def refused(dtype: torch.dtype) -> str | None:
    return refusal("attention_statistics", "native", facts(dtype))


@pytest.mark.slow
@unless(refused)
@pytest.mark.parametrize("dtype", DTYPES, ids=dtype_id)
@pytest.mark.parametrize("terms", TERMS)
def test_native_states_and_statistics_are_within_budget(terms: str, dtype: torch.dtype) -> None:
    case = Case(
        operation="attention_statistics",
        by="native",
        dtype=dtype_id(dtype),
        seed=5,
        options=OPTIONS | TERMS[terms],
    )
    assert hold_to_budget(case)


def drawn(
    total: int, dtype: torch.dtype, head_dim: int = 40
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    query, key, value = (
        rows(MOST, 2, head_dim, seed=n, dtype=dtype, device="cpu")[:total] for n in range(3)
    )
    return query, key, value


def call(
    lengths: list[int], dtype: torch.dtype, num_marks: int = 3, **options: Any
) -> tuple[torch.Tensor, ...]:
    """Return the states and all statistics of drawn tokens; every call begins with the same."""
    layout, total = sequences(lengths, "cpu"), sum(lengths)
    query, key, value = drawn(total, dtype)
    marks = rows(MOST, num_marks, seed=3, dtype=dtype, device="cpu")[:total] > 0
    output, found = ops.attention_statistics(
        *(query, key, value, layout, marks), implementation="native", **options
    )
    return output, *found


@pytest.mark.parametrize("options", [{}, {"window": 30}, {"causal": True}], ids=str)
def test_native_states_have_the_bits_of_attention(options: dict[str, Any]) -> None:
    skip_if_refused("attention_statistics", "native", facts(torch.float32))
    operands = drawn(sum(LENGTHS), torch.float32)
    states = ops.attention(*operands, sequences(LENGTHS, "cpu"), implementation="native", **options)
    assert torch.equal(call(LENGTHS, torch.float32, **options)[0], states)


@pytest.mark.parametrize("dtype", DTYPES, ids=dtype_id)
@pytest.mark.parametrize("name", ["none", "window", "causal", "global rows"])
def test_native_offsets_are_of_the_first_of_the_greatest_weights(
    name: str, dtype: torch.dtype
) -> None:
    """Small integers: no score is rounded, and many are equal."""
    skip_if_refused("attention_statistics", "native", facts(dtype))
    layout, total = sequences(LENGTHS, "cpu"), sum(LENGTHS)
    query, key, value = (x.round() for x in drawn(total, torch.float64, 16))
    case = AttentionCase(
        window=TERMS[name].get("window"),
        causal=name == "causal",
        nth_is_global=TERMS[name].get("nth_is_global"),
    )
    options = case.arguments(layout, dtype) | {"scale": 0.25}
    weights = ops.attention_probabilities(query, key, layout, **options)
    _, found = ops.attention_statistics(
        *(query.to(dtype), key.to(dtype), value.to(dtype)),
        *(layout, torch.zeros(total, 0, dtype=torch.bool)),
        implementation="native",
        **options,
    )
    for number, (start, stop) in enumerate(pairwise(layout.offsets.tolist())):
        if start == stop:
            continue
        own = weights[number, :, : stop - start, : stop - start]
        # The first of those that differ by rounding alone, if at all.
        equal = own >= own.amax(2, keepdim=True) * (1 - 1e-12)
        first = equal.to(torch.int8).argmax(2) - torch.arange(stop - start)
        assert torch.equal(found.offset_TH[start:stop], first.T)
        assert name != "none" or stop - start < 2 or bool((equal.sum(2) > 1).any())


@pytest.mark.parametrize("dtype", DTYPES, ids=dtype_id)
@pytest.mark.parametrize("num_marks", [0, 3, 40])
def test_native_statistics_depend_on_neither_threads_nor_other_sequences(
    dtype: torch.dtype, num_marks: int
) -> None:
    skip_if_refused("attention_statistics", "native", facts(dtype))
    before = torch.get_num_threads()
    try:
        found = []
        for num_threads in (1, 3):
            torch.set_num_threads(num_threads)
            found.append(call([300, *LENGTHS, 130], dtype, num_marks))
    finally:
        torch.set_num_threads(before)
    alone = call([300], dtype, num_marks)
    for one, other, own in zip(*found, alone, strict=True):
        assert torch.equal(one, other)
        assert torch.equal(one[:300], own)


def test_native_statistics_of_no_token_have_their_shapes() -> None:
    skip_if_refused("attention_statistics", "native", facts(torch.float32))
    shapes = [tuple(x.shape) for x in call([], torch.float32)]
    assert shapes == [(0, 2, 40), *[(0, 2)] * 4, (0, 2, 3), (0, 2, 3)]


def test_native_statistics_take_marks_in_any_layout_and_learned_terms() -> None:
    skip_if_refused("attention_statistics", "native", facts(torch.float32))
    layout = sequences([20], "cpu")
    query = rows(20, 2, 16, seed=0, dtype=torch.float32, device="cpu").requires_grad_()
    bias = rows(2, 7, seed=1, dtype=torch.float32, device="cpu").requires_grad_()
    marks = torch.arange(20)[:, None] % torch.tensor([2, 3]) == 0
    found = [
        ops.attention_statistics(
            *(query, query, query, layout, given),
            relative_bias_HR=bias,
            implementation="native",
        )
        for given in (marks, marks.T.contiguous().T)
    ]
    assert torch.equal(found[0][1].marked_THC, found[1][1].marked_THC)
    assert not found[0][0].requires_grad
