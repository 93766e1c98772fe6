"""Attention whose query and key meet vectors that stand for distances, within the budget."""

from __future__ import annotations

from functools import partial

import pytest
import torch
from torch import Tensor

from encoder_engine import ops
from encoder_engine.errors import ImplementationError, ShapeError
from encoder_engine.ops.attention import AttentionFacts
from encoder_engine.ops.testing import assert_within_budget
from encoder_engine.packing import SelectedRows
from tests.ops.cases import DEVICES, DTYPES, dtype_id, implementations, refusal, rows, sequences
from tests.ops.compare import compare
from tests.selection import unless

HEADS, HEAD_DIM, SCALE = 3, 16, 0.2
LENGTHS = [[], [0, 1], [5, 0, 1, 40, 5]]
WHICH = {"both": (True, True), "of the query": (True, False), "of the key": (False, True)}
ENTRIES = ops.log_position_entries(6, 9)
NUM_ENTRIES = 12


def refused(implementation: str, dtype: torch.dtype, device: str, **_: object) -> str | None:
    facts = AttentionFacts(
        terms=("disentangled",), requires_grad=True, dtype=dtype_id(dtype), device=device
    )
    return refusal("attention", implementation, facts)


def able() -> list[str]:
    facts = AttentionFacts(terms=("disentangled",))
    names = implementations("attention")
    return [name for name in names if refusal("attention", name, facts) is None]


def eager(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    to_query: Tensor | None = None,
    to_key: Tensor | None = None,
    *,
    lengths: list[int],
) -> Tensor:
    """Attend one text and one pair of tokens at a time."""
    learned = [x for x in (to_query, to_key) if x is not None]
    parts = [query[:0] + sum(x[:0].sum() for x in (key, value, *learned))]
    start = 0
    for length in lengths:
        here = slice(start, start + length)
        start += length
        if not length:
            continue
        q, k, v = (x[here].transpose(0, 1) for x in (query, key, value))
        scores = q @ k.mT
        places = torch.arange(length, device=query.device)
        reach = len(ENTRIES) // 2
        entry = ENTRIES.to(query.device)[(places - places[:, None]).clamp(-reach, reach) + reach]
        if to_query is not None:
            scores = scores + torch.einsum("hqd,qkhd->hqk", q, to_query[entry])
        if to_key is not None:
            scores = scores + torch.einsum("hkd,qkhd->hqk", k, to_key[entry])
        parts.append(((scores * SCALE).softmax(-1) @ v).transpose(0, 1))
    return torch.cat(parts)


@unless(refused)
@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("implementation", implementations("attention"))
@pytest.mark.parametrize("dtype", DTYPES, ids=dtype_id)
@pytest.mark.parametrize("lengths", LENGTHS, ids=str)
@pytest.mark.parametrize("which", WHICH)
def test_output_and_gradients_are_within_budget(
    which: str, lengths: list[int], dtype: torch.dtype, implementation: str, device: str
) -> None:
    layout = sequences(lengths, device)
    draw = partial(rows, dtype=dtype, device=device)
    names = ("query", "key", "value")
    num = sum(lengths)
    inputs = {name: draw(num, HEADS, HEAD_DIM, seed=i) for i, name in enumerate(names)}
    for place, name in enumerate(("to_query", "to_key")):
        if WHICH[which][place]:
            inputs[name] = draw(NUM_ENTRIES, HEADS, HEAD_DIM, seed=5 + place)

    def run(by: str, query: Tensor, key: Tensor, value: Tensor, **learned: Tensor) -> Tensor:
        said = ops.Disentangled(learned.get("to_query"), learned.get("to_key"), ENTRIES.to(device))
        arguments = (query, key, value, layout)
        return ops.attention(*arguments, scale=SCALE, disentangled=said, implementation=by)

    compare(
        partial(run, implementation),
        partial(eager, lengths=lengths),
        partial(run, "reference"),
        inputs,
        terms=max(num, HEAD_DIM) * max(num, 1),
    )


@pytest.mark.parametrize("implementation", able())
def test_probabilities_and_chosen_queries_agree_with_all(implementation: str) -> None:
    lengths = [4, 0, 9]
    layout = sequences(lengths, "cpu")
    draw = partial(rows, dtype=torch.float32, device="cpu")
    query, key, value = (draw(13, HEADS, HEAD_DIM, seed=i) for i in range(3))
    vectors = [draw(NUM_ENTRIES, HEADS, HEAD_DIM, seed=i) for i in (3, 4)]
    said = ops.Disentangled(*vectors, ENTRIES)
    attend = partial(ops.attention, scale=SCALE, disentangled=said, implementation=implementation)
    whole = attend(query, key, value, layout)
    chosen = torch.tensor([0, 3, 7])
    few = attend(query[chosen], key, value, layout, query_rows=SelectedRows(chosen, layout))
    wide = (query.double(), key.double(), value.double())
    vast = ops.Disentangled(*(x.double() for x in vectors), ENTRIES)
    attend = partial(ops.attention, scale=SCALE, disentangled=vast, implementation="reference")
    truth = attend(*wide, layout)
    assert_within_budget(few, whole[chosen], truth[chosen], terms=16)
    weights = ops.attention_probabilities(query, key, layout, scale=SCALE, disentangled=said)
    mixed = torch.einsum("hqk,khd->qhd", weights[2, :, :9, :9], value[4:])
    assert_within_budget(mixed, whole[4:], truth[4:], terms=16)


@pytest.mark.parametrize("head_dim", [7, 20, 64])
@pytest.mark.parametrize("num_heads", [1, 6])
def test_results_are_bit_equal_alone_and_in_a_batch(num_heads: int, head_dim: int) -> None:
    lengths = [1, 2, 40, 1, 33, 2, 40]
    draw = partial(rows, dtype=torch.float32, device="cpu")
    packed = [draw(sum(lengths), num_heads, head_dim, seed=seed) for seed in range(3)]
    vectors = [draw(512, num_heads, head_dim, seed=seed) for seed in (3, 4)]
    said = ops.Disentangled(*vectors, ops.log_position_entries(256, 512))
    query, key, value = packed
    with torch.inference_mode():
        together = ops.attention(query, key, value, sequences(lengths, "cpu"), disentangled=said)
        for row, length in enumerate(lengths):
            here = slice(sum(lengths[:row]), sum(lengths[: row + 1]))
            query, key, value = (x[here] for x in packed)
            alone = ops.attention(query, key, value, sequences([length], "cpu"), disentangled=said)
            assert torch.equal(alone, together[here]), f"row {row}"


@pytest.mark.parametrize("span", [(8, 20), (8, 384), (12, 43), (32, 100), (256, 512), (None, 6)])
def test_entries_are_those_of_transformers(span: tuple[int | None, int]) -> None:
    from transformers.models.deberta_v2.modeling_deberta_v2 import build_relative_position

    buckets, reach = span
    places = torch.zeros(1, 1, 3 * reach, 1)
    table = build_relative_position(places, places, -1 if buckets is None else buckets, reach)[0]
    num = buckets or reach
    theirs = (table + num).clamp(0, 2 * num - 1)
    distance = torch.arange(3 * reach) - torch.arange(3 * reach)[:, None]
    ours = ops.log_position_entries(buckets, reach)[distance.clamp(-reach, reach) + reach]
    assert torch.equal(ours, theirs)


def test_what_does_not_fit_is_refused() -> None:
    layout = sequences([2], "cpu")
    query = torch.zeros(2, HEADS, HEAD_DIM)
    good = torch.zeros(NUM_ENTRIES, HEADS, HEAD_DIM)
    for said in (
        ops.Disentangled(None, None, ENTRIES),
        ops.Disentangled(good[:, :1], None, ENTRIES),
        ops.Disentangled(good, good[:1], ENTRIES),
        ops.Disentangled(good.double(), None, ENTRIES),
        ops.Disentangled(good, None, ENTRIES[1:]),
        ops.Disentangled(good, None, ENTRIES.int()),
    ):
        with pytest.raises(ShapeError):
            ops.attention(query, query, query, layout, disentangled=said)
    for wrong, message in ((ENTRIES - 1, "got -1 to"), (ENTRIES + 1, f"to {NUM_ENTRIES}")):
        said = ops.Disentangled(good, None, wrong)
        with pytest.raises(ShapeError, match=f"must be 0 to {NUM_ENTRIES - 1}.*{message}"):
            ops.attention(query, query, query, layout, disentangled=said)
    for buckets, reach in ((5, 20), (2, 20), (8, 5)):
        with pytest.raises(ShapeError):
            ops.log_position_entries(buckets, reach)
    whole = ops.Disentangled(good, good, ENTRIES)
    some = SelectedRows(torch.tensor([0]), layout)
    with pytest.raises(ImplementationError, match="disentangled attention with global rows"):
        ops.attention(
            *(query, query, query, layout),
            disentangled=whole,
            window=1,
            global_rows=some,
            implementation="native",
        )
