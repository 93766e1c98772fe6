"""Attention as a step of a plan has the bits of the operation, for every kind of row and term."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from encoder_engine import ops
from encoder_engine.ops.native.rows import address
from encoder_engine.packing import SelectedRows, Sequences
from tests.ops.cases import dtype_id, rows, sequences
from tests.ops.native.batches import LENGTHS, new_plan, refused_type, run
from tests.selection import unless

HEADS, HEAD_DIM = 3, 24
WIDTH = HEADS * HEAD_DIM
SCALE = 0.2
DTYPES = [torch.float32, torch.bfloat16]
REACH = 6


def selection(layout: Sequences, nth: int) -> SelectedRows:
    return SelectedRows(torch.arange(layout.num_tokens)[nth // 2 :: nth], layout)


def batch_of(name: str, chosen: SelectedRows) -> dict[str, Tensor]:
    found = {"selected": ("selected_rows", "cu_selected"), "global": ("global_rows", "cu_global")}
    of_rows, starts = found[name]
    return {of_rows: chosen.rows.int(), starts: chosen.within.cu_seqlens}


def heads_of(joint: Tensor) -> list[Tensor]:
    return list(joint.view(len(joint), -1, HEADS, HEAD_DIM).unbind(1))


def drawn_terms(name: str, dtype: torch.dtype) -> tuple[dict[str, Any], dict[str, Any], list[Any]]:
    """Return a term as arguments of the step and of the operation, and what they point to."""
    if name == "window":
        return {"window": 4}, {"window": 4}, []
    if name == "slopes":
        slopes = torch.linspace(0.5, 0.1, HEADS)
        return {"alibi_slopes": address(slopes)}, {"alibi_slopes_H": slopes}, [slopes]
    if name == "bias":
        bias = rows(HEADS, 2 * REACH + 1, seed=7, dtype=torch.float32, device="cpu")
        given = {"relative_bias": address(bias), "bias_reach": REACH}
        return given, {"relative_bias_HR": bias}, [bias]
    if name == "distances":
        vectors = rows(2 * REACH, 2, HEADS, HEAD_DIM, seed=8, dtype=dtype, device="cpu")
        entries = ops.log_position_entries(None, REACH)
        narrow = entries.int()
        to_query, to_key = vectors.unbind(1)
        step: dict[str, Any] = {
            "distance_keys": (to_query.data_ptr(), *to_query.stride()[:2]),
            "distance_queries": (to_key.data_ptr(), *to_key.stride()[:2]),
            "entries": address(narrow),
            "entries_reach": len(entries) // 2,
        }
        operation = {"disentangled": ops.Disentangled(to_query, to_key, entries)}
        return step, operation, [vectors, narrow]
    return {}, {}, []


@unless(refused_type)
@pytest.mark.parametrize("dtype", DTYPES, ids=dtype_id)
@pytest.mark.parametrize("term", ["none", "window", "slopes", "bias", "distances"])
@pytest.mark.parametrize("queries", ["tokens", "selected", "global"])
def test_attention_is_the_operation(dtype: torch.dtype, term: str, queries: str) -> None:
    layout = sequences(LENGTHS, "cpu")
    joint = rows(layout.num_tokens, 3 * WIDTH, seed=0, dtype=dtype, device="cpu")
    chosen = selection(layout, 5)
    step, operation, _kept = drawn_terms(term, dtype)
    half, size = dtype == torch.bfloat16, dtype.itemsize
    plan = new_plan()
    row = 3 * WIDTH
    source = (0, 0, row)
    num_rows = layout.num_tokens
    query, key, value = heads_of(joint)
    given: dict[str, Any] = {}
    if queries != "tokens":
        taken = plan.add_buffer(row * size, queries)
        plan.take_rows(half, row, 0, taken)
        source = (taken, 0, row)
        query, num_rows = query[chosen.rows], len(chosen)
        given = batch_of(queries, chosen)
        operation["query_rows"] = chosen
    plan.attend(
        *(half, HEADS, HEADS, HEAD_DIM, SCALE, source, (0, WIDTH, row), (0, 2 * WIDTH, row), 1),
        **step,
    )
    target = torch.full((num_rows, WIDTH), torch.nan, dtype=dtype)
    found = run(plan, target, layout, source=joint, **given)
    expected = ops.attention(
        query, key, value, layout, scale=SCALE, implementation="native", **operation
    )
    assert torch.equal(found, expected.flatten(1))


@unless(refused_type)
@pytest.mark.parametrize("dtype", DTYPES, ids=dtype_id)
def test_global_rows_may_be_computed_by_other_projections(dtype: torch.dtype) -> None:
    layout = sequences(LENGTHS, "cpu")
    row, half, size = 3 * WIDTH, dtype == torch.bfloat16, dtype.itemsize
    joint = rows(layout.num_tokens, row, seed=0, dtype=dtype, device="cpu")
    chosen = selection(layout, 7)
    plan = new_plan()
    mixed = plan.add_buffer(WIDTH * size)
    taken = plan.add_buffer(row * size, "global")
    everywhere = plan.add_buffer(WIDTH * size, "global")
    key, value = (0, WIDTH, row), (0, 2 * WIDTH, row)
    common = (half, HEADS, HEADS, HEAD_DIM, SCALE)
    plan.attend(*common, (0, 0, row), key, value, mixed, window=2, sees_global=True)
    plan.take_rows(half, row, 0, taken)
    plan.attend(*common, (taken, 0, row), key, value, everywhere)
    plan.put_rows(half, WIDTH, everywhere, mixed)
    plan.activate(half, "none", False, WIDTH, mixed, 1)
    target = torch.full((layout.num_tokens, WIDTH), torch.nan, dtype=dtype)
    given = batch_of("global", chosen)
    found = run(plan, target, layout, source=joint, **given)
    query, own_key, own_value = heads_of(joint)
    expected = ops.attention(
        *(query, own_key, own_value),
        layout,
        scale=SCALE,
        window=2,
        global_rows=chosen,
        implementation="native",
    )
    assert torch.equal(found, expected.flatten(1))
    with pytest.raises(ValueError, match="pass global_rows and cu_global"):
        run(plan, target, layout, source=joint)


@unless(refused_type)
@pytest.mark.parametrize("dtype", DTYPES, ids=dtype_id)
@pytest.mark.parametrize("queries", ["tokens", "selected"])
def test_heads_of_chosen_rows_turn_by_their_tokens(dtype: torch.dtype, queries: str) -> None:
    layout = sequences(LENGTHS, "cpu")
    half = dtype == torch.bfloat16
    heads = rows(layout.num_tokens, WIDTH, seed=0, dtype=dtype, device="cpu")
    table = ops.rotary_table(64, HEAD_DIM, base=1e4).contiguous()
    positions = layout.positions.int()
    chosen = selection(layout, 4)
    turned, _ = ops.rotary(
        *(heads.view(-1, HEADS, HEAD_DIM),) * 2, table, positions, implementation="native"
    )
    expected = turned.flatten(1)
    plan = new_plan()
    buffer = plan.add_buffer(WIDTH * dtype.itemsize, queries)
    if queries == "selected":
        expected = expected[chosen.rows]
        plan.take_rows(half, WIDTH, 0, buffer)
    else:
        plan.activate(half, "none", False, WIDTH, 0, buffer)
    plan.rotate(half, table.data_ptr(), WIDTH, HEAD_DIM, WIDTH, buffer)
    plan.activate(half, "none", False, WIDTH, buffer, 1)
    given = batch_of("selected", chosen)
    target = torch.full(expected.shape, torch.nan, dtype=dtype)
    found = run(plan, target, layout, source=heads, positions=positions, **given)
    assert torch.equal(found, expected)
    with pytest.raises(ValueError, match="pass positions"):
        run(plan, target, layout, source=heads, **given)


@unless(refused_type)
@pytest.mark.parametrize("dtype", DTYPES, ids=dtype_id)
@pytest.mark.parametrize("kernel_size", [1, 3, 5])
def test_neighbours_are_zeros_beyond_a_sequence(dtype: torch.dtype, kernel_size: int) -> None:
    layout = sequences(LENGTHS, "cpu")
    hidden = rows(layout.num_tokens, WIDTH, seed=0, dtype=dtype, device="cpu")
    plan = new_plan()
    plan.take_neighbours(dtype == torch.bfloat16, WIDTH, kernel_size, 0, 1)
    target = torch.full((layout.num_tokens, kernel_size * WIDTH), torch.nan, dtype=dtype)
    found = run(plan, target, layout, source=hidden)
    reach = kernel_size // 2
    for start, stop in zip(layout.offsets[:-1], layout.offsets[1:], strict=True):
        padded = torch.nn.functional.pad(hidden[start:stop], (0, 0, reach, reach))
        for step in range(kernel_size):
            columns = found[start:stop, step * WIDTH : (step + 1) * WIDTH]
            assert torch.equal(columns, padded[step : step + int(stop - start)])
    with pytest.raises(ValueError, match="kernel_size must be odd, got 2"):
        plan.take_neighbours(False, WIDTH, 2, 0, 1)
