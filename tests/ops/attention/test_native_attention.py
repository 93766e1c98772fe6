"""The C++ attention, which is for inference alone: output, strides, threads, tracing."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import pytest
import torch

from encoder_engine import ops
from encoder_engine.ops.attention import AttentionFacts
from tests.ops.attention.cases import PLAIN, TERMS, AttentionCase
from tests.ops.cases import (
    LENGTHS,
    dtype_id,
    lengths_id,
    refusal,
    rows,
    sequences,
    skip_if_refused,
)
from tests.ops.compare import compare_outputs
from tests.selection import unless

DTYPES = [torch.float32, torch.bfloat16]
# Widths of no whole vector, of one, and of more than a tile holds.
TERM_LENGTHS = [[], [0, 1], [5, 0, 1, 70, 5], [500]]
WIDTHS = [1, 8, 16, 80, 96, 128, 192, 256, 300]


def refused(name: str, dtype: torch.dtype) -> str | None:
    return refused_case((PLAIN | TERMS)[name], dtype)


def refused_case(case: AttentionCase, dtype: torch.dtype) -> str | None:
    facts = AttentionFacts(
        dtype=dtype_id(dtype),
        head_dim=case.head_dim,
        grouped_heads=case.group > 1,
        terms=case.terms,
    )
    return refusal("attention", "native", facts)


def refused_width(head_dim: int, dtype: torch.dtype) -> str | None:
    return refused_case(AttentionCase(head_dim=head_dim), dtype)


def hold_to_budget(case: AttentionCase, lengths: list[int], dtype: torch.dtype) -> None:
    layout = sequences(lengths, "cpu")
    compare_outputs(
        case.attend(layout, dtype, "native"),
        partial(case.eager, layout=layout),
        case.attend(layout, torch.float64, "reference"),
        case.inputs(sum(lengths), dtype, "cpu"),
        terms=max(case.head_dim, *lengths, 1),
    )


@unless(refused)
@pytest.mark.parametrize("dtype", DTYPES, ids=dtype_id)
@pytest.mark.parametrize("lengths", LENGTHS, ids=lengths_id)
@pytest.mark.parametrize("name", PLAIN)
def test_native_output_is_within_budget(name: str, lengths: list[int], dtype: torch.dtype) -> None:
    hold_to_budget(PLAIN[name], lengths, dtype)


@unless(refused)
@pytest.mark.parametrize("dtype", DTYPES, ids=dtype_id)
@pytest.mark.parametrize("lengths", TERM_LENGTHS, ids=lengths_id)
@pytest.mark.parametrize("name", TERMS)
def test_native_output_with_every_term_is_within_budget(
    name: str, lengths: list[int], dtype: torch.dtype
) -> None:
    hold_to_budget(TERMS[name], lengths, dtype)


DISTANCES = {
    "few vectors": AttentionCase(reach_of_vectors=2),
    "vectors": AttentionCase(num_heads=3, head_dim=40, reach_of_vectors=30),
    "more vectors than distances": AttentionCase(num_heads=1, head_dim=64, reach_of_vectors=600),
    "vectors and queries": AttentionCase(reach_of_vectors=20, nth_is_query=5),
    "vectors and every term": AttentionCase(
        reach_of_vectors=9, window=40, causal=True, slopes=True, bias_reach=6, nth_is_query=3
    ),
}
DISTANCE_LENGTHS = [[], [0, 1], [5, 0, 1, 130, 5], [300]]


def refused_distances(name: str, dtype: torch.dtype) -> str | None:
    return refused_case(DISTANCES[name], dtype)


@unless(refused_distances)
@pytest.mark.parametrize("dtype", DTYPES, ids=dtype_id)
@pytest.mark.parametrize("lengths", DISTANCE_LENGTHS, ids=lengths_id)
@pytest.mark.parametrize("name", DISTANCES)
def test_native_output_with_distance_vectors_is_within_budget(
    name: str, lengths: list[int], dtype: torch.dtype
) -> None:
    case, layout = DISTANCES[name], sequences(lengths, "cpu")
    # A score is a sum of products: its terms reach the head size, times the scale.
    compare_outputs(
        case.attend(layout, dtype, "native"),
        partial(case.eager, layout=layout),
        case.attend(layout, torch.float64, "reference"),
        case.inputs(sum(lengths), dtype, "cpu"),
        terms=max(3 * case.head_dim, *lengths, 1),
    )


@unless(refused_width)
@pytest.mark.parametrize("dtype", DTYPES, ids=dtype_id)
@pytest.mark.parametrize("head_dim", WIDTHS)
def test_native_output_of_any_width_is_within_budget(head_dim: int, dtype: torch.dtype) -> None:
    hold_to_budget(AttentionCase(head_dim=head_dim), [1, 17, 100, 200], dtype)


@pytest.mark.parametrize("dtype", DTYPES, ids=dtype_id)
def test_native_weights_too_small_to_matter_are_nothing(dtype: torch.dtype) -> None:
    # Scores hundreds apart: exponentials that are denormal, or would be after a product.
    skip_if_refused("attention", "native", AttentionFacts(dtype=dtype_id(dtype)))
    case = AttentionCase(num_heads=1, head_dim=32, scale=8.0)
    hold_to_budget(case, [70, 200], dtype)


@pytest.mark.parametrize("dtype", DTYPES, ids=dtype_id)
def test_native_bits_depend_on_neither_strides_nor_threads(dtype: torch.dtype) -> None:
    skip_if_refused("attention", "native", AttentionFacts(dtype=dtype_id(dtype)))
    lengths = [1, 300, 9, 40, 700, 64, 65]
    layout = sequences(lengths, "cpu")
    joint = rows(sum(lengths), 3, 3, 32, seed=0, dtype=dtype, device="cpu")
    views = joint.unbind(1)
    copies = [x.clone() for x in views]
    scattered = [x.transpose(1, 2).contiguous().transpose(1, 2) for x in views]
    before = torch.get_num_threads()
    found = []
    try:
        for num_threads in (1, 2, 5):
            torch.set_num_threads(num_threads)
            found += [
                ops.attention(query, key, value, layout, implementation="native")
                for query, key, value in (views, copies, scattered)
            ]
    finally:
        torch.set_num_threads(before)
    for other in found[1:]:
        assert torch.equal(found[0], other)


def test_native_attention_is_an_operator_that_traces() -> None:
    skip_if_refused("attention", "native", AttentionFacts())
    from encoder_engine.ops.native.attention import operator

    packed = [rows(20, 2, 8, seed=s, dtype=torch.float32, device="cpu") for s in range(3)]
    torch.library.opcheck(
        operator,
        (*packed, sequences([3, 17], "cpu").cu_seqlens, 0.3, 5, False, *[None] * 9),
    )


@pytest.mark.parametrize("dtype", DTYPES, ids=dtype_id)
@pytest.mark.parametrize("term", ["none", "bias", "slopes", "vectors"])
def test_chosen_queries_have_the_bits_of_all(dtype: torch.dtype, term: str) -> None:
    """Without a window, whose blocks of keys begin at the first query."""
    case = {
        "none": AttentionCase(num_heads=3, head_dim=40),
        "bias": AttentionCase(bias_reach=20),
        "slopes": AttentionCase(slopes=True, causal=True),
        "vectors": AttentionCase(reach_of_vectors=50),
    }[term]
    reason = refused_case(case, dtype)
    if reason is not None:
        pytest.skip(reason)
    lengths = [1, 300, 0, 40, 65]
    layout = sequences(lengths, "cpu")
    inputs = case.inputs(sum(lengths), dtype, "cpu")
    everything = case.attend(layout, dtype, "native")(**inputs)
    for nth in (2, 9, 150):
        few = replace(case, nth_is_query=nth)
        chosen = few.rows(sum(lengths), nth)
        found = few.attend(layout, dtype, "native")(**inputs | {"query": inputs["query"][chosen]})
        assert torch.equal(found, everything[chosen])


@pytest.mark.parametrize("dtype", DTYPES, ids=dtype_id)
def test_scores_that_all_overflow_are_not_a_number(dtype: torch.dtype) -> None:
    case = AttentionCase()
    reason = refused_case(case, dtype)
    if reason is not None:
        pytest.skip(reason)
    layout, inputs = sequences([40], "cpu"), case.inputs(40, dtype, "cpu")
    inputs["query"].fill_(1e30)
    inputs["key"].fill_(-1e30)
    assert case.attend(layout, dtype, "native")(**inputs).isnan().all()


@pytest.mark.parametrize("size", [1e4, 1e10, 1e15])
@pytest.mark.parametrize("sign", [1.0, -1.0])
@pytest.mark.parametrize("dtype", DTYPES, ids=dtype_id)
def test_huge_scores_choose_one_key(dtype: torch.dtype, sign: float, size: float) -> None:
    case = AttentionCase()
    reason = refused_case(case, dtype)
    if reason is not None:
        pytest.skip(reason)
    layout, inputs = sequences([40], "cpu"), case.inputs(40, dtype, "cpu")
    # Scores rise with the key's place, or fall from it. Queries differ, so that roundings do.
    inputs["query"].abs_().add_(0.1).mul_(sign * size)
    inputs["key"].copy_((1.0 + torch.arange(40.0))[:, None, None].expand_as(inputs["key"]) * size)
    best = inputs["value"][39 if sign > 0 else 0]
    assert torch.equal(case.attend(layout, dtype, "native")(**inputs), best.expand(40, -1, -1))


@pytest.mark.parametrize("dtype", DTYPES, ids=dtype_id)
@pytest.mark.parametrize("term", ["bias", "queries", "global rows", "vectors"])
def test_native_terms_depend_on_neither_threads_nor_other_sequences(
    dtype: torch.dtype, term: str
) -> None:
    case = {
        "bias": AttentionCase(bias_reach=20, window=30),
        "queries": AttentionCase(nth_is_query=3),
        "global rows": AttentionCase(window=7, nth_is_global=13),
        "vectors": AttentionCase(reach_of_vectors=50, num_heads=3),
    }[term]
    reason = refused_case(case, dtype)
    if reason is not None:
        pytest.skip(reason)
    lengths = [26, 650, 13, 39, 78]  # multiples of every nth
    inputs = case.inputs(sum(lengths), dtype, "cpu")
    attend = case.attend(sequences(lengths, "cpu"), dtype, "native")
    before = torch.get_num_threads()
    try:
        found = []
        for num_threads in (1, 2, 5):
            torch.set_num_threads(num_threads)
            found.append(attend(**inputs))
    finally:
        torch.set_num_threads(before)
    assert torch.equal(found[0], found[1])
    assert torch.equal(found[0], found[2])
    if case.nth_is_query is not None:
        return
    start = 0
    for length in lengths:
        here = slice(start, start + length)
        own = {name: x[here] if len(x) == sum(lengths) else x for name, x in inputs.items()}
        alone = case.attend(sequences([length], "cpu"), dtype, "native")(**own)
        assert torch.equal(alone, found[0][here])
        start += length
