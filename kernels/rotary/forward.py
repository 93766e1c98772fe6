"""Rotary position embeddings of query and key in one launch; backward is the inverse rotation."""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from ..common.launch import cdiv, next_power_of_2, on_device

# Pairs that a program rotates.
BLOCK_PAIRS = 2048
NUM_WARPS = 4


@triton.jit
def _rotary_kernel(
    query_pointer,  # [T, H, D]
    key_pointer,  # [T, K, D]
    table_pointer,  # float32 [P, D]: cosines, then sines
    positions_pointer,  # int32 or int64 [T]
    rotated_query_pointer,  # [T, H, D], may be the query
    rotated_key_pointer,  # [T, K, D], may be the key
    query_stride,
    key_stride,
    rotated_query_stride,
    rotated_key_stride,
    num_tokens,
    num_positions,
    NUM_HEADS: tl.constexpr,
    HALF: tl.constexpr,
    BLOCK_HALF: tl.constexpr,
    BLOCK_ROWS: tl.constexpr,
    INVERSE: tl.constexpr,
):
    rows = tl.program_id(0).to(tl.int64) * BLOCK_ROWS + tl.arange(0, BLOCK_ROWS)
    pairs = tl.arange(0, BLOCK_HALF)
    head = tl.program_id(1)
    inside = (rows < num_tokens)[:, None] & (pairs < HALF)[None, :]
    positions = tl.load(positions_pointer + rows, mask=rows < num_tokens, other=0).to(tl.int64)
    # A position outside the table makes the token NaN; nothing outside the table is read.
    known = inside & ((positions >= 0) & (positions < num_positions))[:, None]
    angles = table_pointer + positions[:, None] * (2 * HALF) + pairs[None, :]
    cosine = tl.load(angles, mask=known, other=float("nan"))
    sine = tl.load(angles + HALF, mask=known, other=float("nan"))
    if INVERSE:
        sine = -sine
    source = query_pointer + rows[:, None] * query_stride + head * (2 * HALF)
    target = rotated_query_pointer + rows[:, None] * rotated_query_stride + head * (2 * HALF)
    if head >= NUM_HEADS:
        head -= NUM_HEADS
        source = key_pointer + rows[:, None] * key_stride + head * (2 * HALF)
        target = rotated_key_pointer + rows[:, None] * rotated_key_stride + head * (2 * HALF)
    source += pairs[None, :]
    target += pairs[None, :]
    first = tl.load(source, mask=inside, other=0.0).to(tl.float32)
    second = tl.load(source + HALF, mask=inside, other=0.0).to(tl.float32)
    kind = rotated_query_pointer.dtype.element_ty
    tl.store(target, (first * cosine - second * sine).to(kind), mask=inside)
    tl.store(target + HALF, (second * cosine + first * sine).to(kind), mask=inside)


def block_shape(half: int) -> tuple[int, int]:
    """Return the tokens and (padded) feature pairs that one program rotates at once."""
    pairs = next_power_of_2(half)
    return max(1, BLOCK_PAIRS // pairs), pairs


def rotary_forward(
    query_THD: Tensor, key_TKD: Tensor, table_PD: Tensor, position_ids_T: Tensor, inverse: bool
) -> tuple[Tensor, Tensor]:
    """Return query and key, rotated; each token's [heads, D] is contiguous before and after."""
    turned_query = torch.empty_like(query_THD, memory_format=torch.contiguous_format)
    turned_key = torch.empty_like(key_TKD, memory_format=torch.contiguous_format)
    turn(query_THD, key_TKD, turned_query, turned_key, table_PD, position_ids_T, inverse)
    return turned_query, turned_key


@on_device
def turn(
    query_THD: Tensor,
    key_TKD: Tensor,
    turned_query: Tensor,
    turned_key: Tensor,
    table_PD: Tensor,
    position_ids_T: Tensor,
    inverse: bool,
) -> None:
    """Launch the rotation kernel; ``turned_query``, ``turned_key`` may be the inputs themselves."""
    num_tokens, num_heads, head_dim = query_THD.shape
    if num_tokens > 0:
        block_rows, block_half = block_shape(head_dim // 2)
        grid = (cdiv(num_tokens, block_rows), num_heads + key_TKD.shape[1])
        _rotary_kernel[grid](
            query_THD,
            key_TKD,
            table_PD,
            position_ids_T,
            turned_query,
            turned_key,
            query_THD.stride(0),
            key_TKD.stride(0),
            turned_query.stride(0),
            turned_key.stride(0),
            num_tokens,
            len(table_PD),
            NUM_HEADS=num_heads,
            HALF=head_dim // 2,
            BLOCK_HALF=block_half,
            BLOCK_ROWS=block_rows,
            INVERSE=inverse,
            num_warps=NUM_WARPS,
        )
