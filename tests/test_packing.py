"""Packed batches say what is wrong with them, and padding goes in and out without loss."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.utils._python_dispatch import TorchDispatchMode

from encoder_engine.errors import BatchError, TokenIdError
from encoder_engine.packing import PackedBatch, SelectedRows, Sequences, pack, pad, unpad

LENGTHS = st.lists(st.integers(0, 9), max_size=12)


def int32(*values: int) -> torch.Tensor:
    return torch.tensor(values, dtype=torch.int32)


@settings(deadline=None)
@given(LENGTHS)
def test_sequences_know_their_places(lengths: list[int]) -> None:
    layout = Sequences.from_lengths(lengths)
    assert layout.lengths.tolist() == lengths
    assert len(layout) == len(lengths)
    assert layout.num_tokens == sum(lengths)
    assert layout.max_seqlen == max(lengths, default=0)
    assert layout.common_length == (lengths[0] if len(set(lengths)) == 1 else 0)
    assert layout.positions.tolist() == [p for n in lengths for p in range(n)]
    assert layout.sequence_ids.tolist() == [s for s, n in enumerate(lengths) for _ in range(n)]


@settings(deadline=None)
@given(LENGTHS)
def test_length_groups_hold_every_row_once(lengths: list[int]) -> None:
    layout = Sequences.from_lengths(lengths)
    values = torch.arange(layout.num_tokens)
    parts = [values[group.rows] for group in layout.length_groups]
    for group, part in zip(layout.length_groups, parts, strict=True):
        assert all(lengths[member] == group.length for member in group.members.tolist())
        assert len(part) == group.length * len(group.members)
    joined = torch.cat(parts) if parts else values
    order = layout.grouped_order
    assert torch.equal(joined if order is None else joined[order], values)


@settings(deadline=None)
@given(LENGTHS, st.sampled_from(["left", "right"]), st.integers(0, 3))
def test_pad_then_unpad_gives_the_rows_back(lengths: list[int], side: Any, extra: int) -> None:
    batch = pack([list(range(1, n + 1)) for n in lengths])
    length = batch.max_seqlen + extra
    padded = pad(batch.input_ids, batch.sequences, length=length, side=side)
    assert padded.shape == (len(lengths), length)
    for row, n in zip(padded.tolist(), lengths, strict=True):
        zeros = [0] * (length - n)
        ids = list(range(1, n + 1))
        assert row == (ids + zeros if side == "right" else zeros + ids)
    again = unpad(padded, (padded != 0).long())
    assert torch.equal(again.input_ids, batch.input_ids)
    assert torch.equal(again.cu_seqlens, batch.cu_seqlens)


def test_pad_passes_gradients_to_the_rows_and_drops_the_rest() -> None:
    values = torch.randn(5, 3, requires_grad=True)
    padded = pad(values, Sequences.from_lengths([2, 3]), length=4, value=7.0)
    assert bool((padded[0, 2:] == 7.0).all())
    weights = torch.randn(2, 4, 3)
    padded.backward(weights)  # type: ignore[no-untyped-call]
    assert values.grad is not None
    assert torch.equal(values.grad, torch.cat([weights[0, :2], weights[1, :3]]))


def test_unpad_keeps_columns_where_position_ids_are_given() -> None:
    ids = torch.tensor([[0, 0, 5, 6], [7, 8, 9, 0]])
    mask = torch.tensor([[0, 0, 1, 1], [1, 1, 1, 0]])
    places = torch.arange(4).expand(2, 4)
    batch = unpad(ids, mask, position_ids=places, token_type_ids=mask)
    assert batch.position_ids is not None
    assert batch.position_ids.tolist() == [2, 3, 0, 1, 2]
    assert batch.token_type_ids is not None
    assert batch.token_type_ids.tolist() == [1, 1, 1, 1, 1]


def test_from_numpy_does_not_copy_on_the_cpu() -> None:
    ids = np.array([1, 2, 3], dtype=np.int32)
    batch = PackedBatch.from_numpy(input_ids=ids, cu_seqlens=np.array([0, 3], dtype=np.int32))
    ids[0] = 9
    assert batch.input_ids.tolist() == [9, 2, 3]


def test_an_empty_batch_is_a_batch() -> None:
    batch = pack([])
    assert (len(batch), batch.num_tokens, batch.max_seqlen) == (0, 0, 0)


def test_a_token_outside_the_vocabulary_names_its_row_and_place() -> None:
    with pytest.raises(TokenIdError, match="token id 12 at row 2, position 1") as caught:
        pack([[1], [], [3, 12], [40]], vocab_size=12)
    assert caught.value.row == 2
    with pytest.raises(TokenIdError, match="token id -1 at row 0"):
        pack([[-1]], vocab_size=12)


BAD_SEQUENCES: list[tuple[Any, str]] = [
    ([0, 1], "list"),
    (torch.tensor([0, 1]), "int64"),
    (torch.tensor([0.0, 1.0]), "float32"),
    (int32(), r"\[0\]"),
    (int32(0, 1)[None], r"\[1, 2\]"),
    (int32(1, 2), "start at 0, got 1"),
    (int32(0, 4, 2, 5), "sequence 1 would run from 4 to 2"),
]


@pytest.mark.parametrize(("cu_seqlens", "message"), BAD_SEQUENCES)
def test_cu_seqlens_that_contradict_themselves_are_refused(cu_seqlens: Any, message: str) -> None:
    with pytest.raises(BatchError, match=message):
        Sequences(cu_seqlens)


TWO = Sequences.from_lengths([1, 1])
BAD_BATCHES: list[tuple[dict[str, Any], str]] = [
    ({"input_ids": [1, 2]}, "input_ids must be an int32 or int64 tensor .* got list"),
    ({"input_ids": torch.zeros(2)}, "float32"),
    ({"input_ids": None}, "NoneType"),
    ({"input_ids": int32(1, 2)[None]}, r"\[1, 2\]"),
    ({"input_ids": int32(1, 2, 3)}, "3 tokens, cu_seqlens ends at 2"),
    ({"token_type_ids": int32(1)}, "token_type_ids has 1 tokens"),
    ({"position_ids": torch.ones(2)}, "position_ids must be"),
    ({"sequences": int32(0, 1, 2)}, "wrap cu_seqlens"),
    ({"input_ids": int32(1, 2).to("meta")}, "is on meta, cu_seqlens on cpu"),
]


@pytest.mark.parametrize(("change", "message"), BAD_BATCHES)
def test_batches_that_contradict_themselves_are_refused(
    change: dict[str, Any], message: str
) -> None:
    good: dict[str, Any] = {"input_ids": int32(1, 2), "sequences": TWO}
    with pytest.raises(BatchError, match=message):
        PackedBatch(**(good | change))


BAD_ROWS: list[tuple[Any, int]] = [
    ([[1], "text"], 1),
    ([[1], b"bytes"], 1),
    ([[1], [2.5]], 1),
    ([[[1]], [2]], 0),
    ([[1], [None]], 1),
    ([[1], [2, [3]]], 1),
]


@pytest.mark.parametrize(("rows", "row"), BAD_ROWS)
def test_rows_that_are_not_token_ids_are_named(rows: Any, row: int) -> None:
    with pytest.raises(BatchError, match=f"row {row}") as caught:
        pack(rows)
    assert caught.value.row == row


def test_token_types_must_match_their_row() -> None:
    with pytest.raises(BatchError, match="row 1 has 2 ids but 1 token type ids"):
        pack([[1], [2, 3]], token_type_ids=[[0], [0]])
    types: Any = [[0], 0]
    with pytest.raises(BatchError, match="token_type_ids row 1 must be a flat sequence"):
        pack([[1], [2, 3]], token_type_ids=types)


@pytest.mark.parametrize(
    ("ids", "mask", "message"),
    [
        (torch.ones(3, dtype=torch.int64), None, r"\[B, L\]"),
        (torch.ones(2, 3, dtype=torch.int64), torch.ones(2, 2, dtype=torch.int64), r"\[2, 2\]"),
        (torch.ones(1, 2, dtype=torch.int64), torch.tensor([[0.0, -1e9]]), "additive mask"),
        (torch.ones(1, 2, dtype=torch.int64), torch.tensor([[1, 2]]), "0 and 1"),
    ],
)
def test_padded_input_that_cannot_be_unpadded_is_refused(
    ids: torch.Tensor, mask: torch.Tensor | None, message: str
) -> None:
    with pytest.raises(BatchError, match=message):
        unpad(ids, mask)


@pytest.mark.parametrize(
    ("num_rows", "keywords", "message"),
    [
        (4, {}, "4 rows, the sequences hold 5"),
        (5, {"length": 2}, "row 1 has 3 tokens, more than length=2"),
        (5, {"side": "middle"}, "'left' or 'right'"),
    ],
)
def test_pad_refuses_what_does_not_fit(
    num_rows: int, keywords: dict[str, Any], message: str
) -> None:
    with pytest.raises(BatchError, match=message):
        pad(torch.zeros(num_rows), Sequences.from_lengths([2, 3]), **keywords)


@pytest.mark.gpu
def test_a_batch_moves_to_the_gpu_whole() -> None:
    batch = pack([[1, 2], [3]], token_type_ids=[[0, 1], [0]]).to("cuda")
    assert {str(t.device.type) for t in (batch.input_ids, batch.cu_seqlens)} == {"cuda"}
    assert batch.token_type_ids is not None
    assert batch.token_type_ids.is_cuda
    assert batch.sequences.positions.is_cuda


class Copies(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Lists the copies between devices, and whether the host waits for each."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.waiting: list[bool] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Compute the operator."""
        assert func is not torch.ops.aten._local_scalar_dense.default, "the host reads a value"
        keywords = kwargs or {}
        if func is torch.ops.aten._to_copy.default and "device" in keywords:
            self.waiting.append(not keywords.get("non_blocking", False))
        return func(*args, **keywords)


def test_the_host_waits_for_no_device_that_lengths_are_copied_to() -> None:
    # The device "meta" cannot be read; for a CUDA device the host would have to wait.
    with Copies() as copies:
        sequences = Sequences.from_lengths([3, 0, 5, 3], device="meta")
        first = SelectedRows.of_first(sequences)
        sequences.tiles(2)
        assert [group.length for group in sequences.length_groups] == [3, 5]
        assert sequences.grouped_rows is not None
        assert sequences.grouped_order is not None
    assert copies.waiting == [False] * 9
    assert {x.device.type for x in (sequences.cu_seqlens, first.rows, first.places)} == {"meta"}
    assert sequences.offsets.tolist() == [0, 3, 3, 8, 11]
    assert (sequences.num_tokens, sequences.max_seqlen, sequences.common_length) == (11, 5, 0)
