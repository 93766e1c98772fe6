"""Steps of a native plan do what the operations of the same name do, with the same bits."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from encoder_engine import ops
from encoder_engine.packing import SelectedRows
from tests.ops.cases import dtype_id, rows, sequences
from tests.ops.native.batches import LENGTHS, new_plan, refused, refused_type, run
from tests.selection import unless

WIDTH = 40
DTYPES = [torch.float32, torch.bfloat16]


def ids_of(num_rows: int, below: int, seed: int) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(below, (num_rows,), generator=generator, dtype=torch.int32)


def embedding_tables(dtype: torch.dtype) -> dict[str, Tensor]:
    sizes = {"token": 50, "position": 60, "segment": 3}
    return {
        name: rows(size, WIDTH, seed=seed, dtype=dtype, device="cpu")
        for seed, (name, size) in enumerate(sizes.items())
    }


@unless(refused_type)
@pytest.mark.parametrize("dtype", DTYPES, ids=dtype_id)
@pytest.mark.parametrize("with_norm", [False, True], ids=["sum", "norm"])
@pytest.mark.parametrize("with_types", [False, True], ids=["no types", "types"])
def test_embedding_is_the_operation(dtype: torch.dtype, with_norm: bool, with_types: bool) -> None:
    layout = sequences(LENGTHS, "cpu")
    tables = embedding_tables(dtype)
    weight, bias = (rows(WIDTH, seed=s, dtype=dtype, device="cpu") for s in (3, 4))
    total = layout.num_tokens
    ids, places = ids_of(total, 50, 0), ids_of(total, 60, 1)
    types = ids_of(total, 3, 2) if with_types else None
    plan = new_plan()
    plan.embed(
        dtype == torch.bfloat16,
        *(tables["token"].data_ptr(), 50, tables["position"].data_ptr(), 60),
        *(tables["segment"].data_ptr(), 3),
        *((weight.data_ptr(), bias.data_ptr()) if with_norm else (0, 0)),
        WIDTH,
        1e-5,
        1,
    )
    found = run(
        plan,
        torch.empty(total, WIDTH, dtype=dtype),
        layout,
        ids=ids,
        type_ids=types,
        position_ids=places,
    )
    expected = ops.embedding(
        *(ids, places, types),
        token_weight_VE=tables["token"],
        position_weight_PE=tables["position"],
        segment_weight_SE=tables["segment"],
        norm_weight_E=weight if with_norm else None,
        norm_bias_E=bias if with_norm else None,
        epsilon=1e-5,
        implementation="native",
    )
    assert torch.equal(found, expected)
    with pytest.raises(IndexError, match="outside"):
        run(plan, found, layout, ids=ids + 50, position_ids=places)
    with pytest.raises(ValueError, match="pass position_ids"):
        run(plan, found, layout, ids=ids)
    with pytest.raises(ValueError, match="pass ids"):
        run(plan, found, layout, position_ids=places)


@unless(refused_type)
@pytest.mark.parametrize("dtype", DTYPES, ids=dtype_id)
@pytest.mark.parametrize("mode", ops.POOLING_MODES)
@pytest.mark.parametrize("selected", [False, True], ids=["tokens", "selected"])
def test_pooling_is_the_operation(
    dtype: torch.dtype, mode: ops.PoolingMode, selected: bool
) -> None:
    layout = sequences(LENGTHS, "cpu")
    hidden = rows(layout.num_tokens, WIDTH, seed=0, dtype=dtype, device="cpu")
    half = dtype == torch.bfloat16
    plan = new_plan()
    source = 0
    some = SelectedRows(torch.arange(layout.num_tokens)[1::3], layout)
    if selected:
        source = plan.add_buffer(WIDTH * dtype.itemsize, "selected")
        plan.take_rows(half, WIDTH, 0, source)
    if half:
        wide = plan.add_buffer(WIDTH * 4, "selected" if selected else "tokens")
        plan.widen(WIDTH, source, wide)
        source = wide
    plan.pool(False, mode, True, WIDTH, source, 1)
    found = run(
        plan,
        torch.full((len(layout), WIDTH), torch.nan),
        layout,
        source=hidden,
        selected_rows=some.rows.int(),
        cu_selected=some.within.cu_seqlens,
    )
    rows_of = (hidden[some.rows], some.within) if selected else (hidden, layout)
    expected = ops.pooling(
        rows_of[0].float(), rows_of[1], mode=mode, normalize=True, implementation="native"
    )
    assert torch.equal(found, expected)


@unless(refused)
@pytest.mark.parametrize("rows_of", ["tokens", "selected", "sequences"])
def test_steps_run_over_the_rows_of_their_buffers(rows_of: str) -> None:
    layout = sequences(LENGTHS, "cpu")
    hidden = rows(layout.num_tokens, WIDTH, seed=0, dtype=torch.float32, device="cpu")
    some = SelectedRows(torch.arange(layout.num_tokens)[2::5], layout)
    expected = {
        "tokens": hidden,
        "selected": hidden[some.rows],
        "sequences": ops.pooling(hidden, layout, mode="max", implementation="native"),
    }[rows_of]
    plan = new_plan()
    source = 0
    if rows_of != "tokens":
        source = plan.add_buffer(WIDTH * 4, rows_of)
    if rows_of == "selected":
        plan.take_rows(False, WIDTH, 0, source)
    if rows_of == "sequences":
        plan.pool(False, "max", False, WIDTH, 0, source)
    plan.activate(False, "relu", False, WIDTH, source, 1)
    found = run(
        plan,
        torch.full(expected.shape, torch.nan),
        layout,
        source=hidden,
        selected_rows=some.rows.int(),
        cu_selected=some.within.cu_seqlens,
    )
    assert torch.equal(found, expected.relu())


@unless(refused)
def test_buffers_of_other_rows_are_refused() -> None:
    plan = new_plan()
    few = plan.add_buffer(WIDTH * 4, "selected")
    with pytest.raises(ValueError, match="step has rows of tokens, but buffer 2 has rows of sel"):
        plan.activate(False, "relu", False, WIDTH, 0, few)
    with pytest.raises(ValueError, match="step has rows of selected rows, but buffer 0"):
        plan.add(False, WIDTH, few, 0, few)
    with pytest.raises(ValueError, match="there is no buffer 7; there are 3"):
        plan.activate(False, "relu", False, WIDTH, 7, 1)
    with pytest.raises(ValueError, match="no rows 'words'; there are tokens, selected, global"):
        plan.add_buffer(4, "words")
    with pytest.raises(ValueError, match="no activation 'softmax'; there are none, gelu"):
        plan.activate(False, "softmax", False, WIDTH, 0, 1)
    with pytest.raises(ValueError, match="no pooling mode 'median'; there are cls"):
        plan.pool(False, "median", False, WIDTH, 0, 1)
    heads = (0, 0, WIDTH)
    with pytest.raises(ValueError, match="the reach of a relative bias, but no bias"):
        plan.attend(False, 1, 1, WIDTH, 1.0, heads, heads, heads, 1, bias_reach=4)
    per_sequence = plan.add_buffer(WIDTH * 4, "sequences")
    with pytest.raises(ValueError, match="nothing to pool"):
        plan.pool(False, "mean", False, WIDTH, per_sequence, 1)
    layout = sequences([2], "cpu")
    with pytest.raises(ValueError, match="pass selected_rows and cu_selected"):
        run(plan, torch.empty(2, WIDTH), layout, source=torch.zeros(2, WIDTH))
    plan = new_plan()
    plan.activate(False, "relu", False, WIDTH, 0, 1)
    with pytest.raises(ValueError, match="pass its rows"):
        run(plan, torch.empty(2, WIDTH), layout)


@unless(refused)
def test_no_selected_row_is_no_row() -> None:
    layout = sequences([2, 1], "cpu")
    plan = new_plan()
    few = plan.add_buffer(WIDTH * 4, "selected")
    plan.take_rows(False, WIDTH, 0, few)
    plan.activate(False, "tanh", False, WIDTH, few, 1)
    nothing: dict[str, Any] = {"cu_selected": torch.zeros(3, dtype=torch.int32)}
    found = run(plan, torch.empty(0, WIDTH), layout, source=torch.zeros(3, WIDTH), **nothing)
    assert found.shape == (0, WIDTH)


@unless(refused)
def test_buffers_share_memory_where_their_contents_do_not_meet() -> None:
    layout = sequences(LENGTHS, "cpu")
    hidden = rows(layout.num_tokens, WIDTH, seed=0, dtype=torch.float32, device="cpu")
    plan = new_plan()
    buffers = [plan.add_buffer(WIDTH * 4) for _ in range(3)]
    kept = plan.add_buffer(WIDTH * 4)
    plan.activate(False, "relu", False, WIDTH, 0, kept)
    source = 0
    expected = hidden
    # Each is written again and again; never are more than two of them needed, beside `kept`.
    for step in range(12):
        target = buffers[step % 3]
        plan.activate(False, "tanh", False, WIDTH, source, target)
        plan.add(False, WIDTH, target, kept, target)
        source = target
        expected = torch.tanh(expected) + hidden.relu()
    plan.activate(False, "none", False, WIDTH, source, 1)
    found = run(plan, torch.full_like(hidden, torch.nan), layout, source=hidden)
    torch.testing.assert_close(found, expected)
    # 160 bytes take three cache lines.
    assert plan.buffer_bytes(64) == 3 * 64 * 192
    assert plan.buffer_bytes(0) == 0


@unless(refused)
def test_memory_counts_the_rows_of_each_kind() -> None:
    plan = new_plan()
    few = plan.add_buffer(64, "selected")
    other = plan.add_buffer(128, "global")
    pooled = plan.add_buffer(256, "sequences")
    plan.take_rows(False, 16, 0, few)
    plan.take_rows(False, 16, 0, other)
    plan.pool(False, "mean", False, 16, few, pooled)
    plan.activate(False, "none", False, 16, pooled, 1)
    for num_selected, num_sequences, num_global in ((2, 3, 5), (9, 1, 4)):
        expected = 64 * num_selected + 128 * num_global + 256 * num_sequences
        assert plan.buffer_bytes(100, num_sequences, num_selected, num_global) == expected
