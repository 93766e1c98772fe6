"""Bidirectional attention over packed sequences, softmax online: the forward kernel.

FlashAttention-2's schedule (Dao 2023): a program owns a block of query rows of one sequence and one
head and walks over that sequence's keys; nothing quadratic is stored. Blocks come from a tile list
made once per batch, so there is no program for padding, which does not exist.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
import triton
import triton.language as tl
from torch import Tensor

from ..common.dropout import keep_scale
from .tile import constants, key_range, load_rows, scores

if TYPE_CHECKING:
    from .config import Launch
    from .differentiable import Call


@triton.jit
def _walk(
    query,
    highest,
    total,
    mixed,
    key_pointer,
    value_pointer,
    seed_pointer,
    rows,
    columns,
    low,
    high,
    length,
    start,
    head,
    key_stride,
    value_stride,
    scale,
    slope,
    dropout,
    NUM_HEADS: tl.constexpr,
    HEAD_DIM: tl.constexpr,
    BLOCK_KEYS: tl.constexpr,
    WINDOW: tl.constexpr,
    CAUSAL: tl.constexpr,
    HAS_SLOPES: tl.constexpr,
    HAS_DROPOUT: tl.constexpr,
    PRECISION: tl.constexpr,
    MASKED: tl.constexpr,
):
    """Take the keys low .. high into the running maximum, sum and mix of a block of rows."""
    for at in tl.range(low, high, BLOCK_KEYS):
        keys = at + tl.arange(0, BLOCK_KEYS)
        key = load_rows(key_pointer, keys, columns, key_stride, length, HEAD_DIM, MASKED)
        score = scores(
            query, key, rows, keys, length, scale, slope,
            WINDOW, CAUSAL, HAS_SLOPES, MASKED, PRECISION,
        )  # fmt: skip
        higher = tl.maximum(highest, tl.max(score, axis=1))
        shift = higher
        if MASKED:
            # A row that has seen nothing yet stays at -inf; shift by 0 instead of by -inf.
            shift = tl.where(higher == float("-inf"), 0.0, higher)
        weight = tl.exp2(score - shift[:, None])
        shrink = tl.exp2(highest - shift)
        total = total * shrink + tl.sum(weight, axis=1)
        if HAS_DROPOUT:
            tokens = (start + rows) * NUM_HEADS + head
            weight *= keep_scale(tl.load(seed_pointer), tokens, keys, dropout)
        value = load_rows(value_pointer, keys, columns, value_stride, length, HEAD_DIM, MASKED)
        mixed = mixed * shrink[:, None]
        mixed = tl.dot(weight.to(value.dtype), value, mixed, input_precision=PRECISION)
        highest = higher
    return highest, total, mixed


@triton.jit
def _attention_forward_kernel(
    query_pointer,  # [T, H, D]
    key_pointer,  # [T, K, D], K heads dividing H
    value_pointer,  # [T, K, D]
    output_pointer,  # [T, H, D] contiguous
    lse_pointer,  # float32 [H, T]
    cu_seqlens_pointer,  # int32 [B + 1]
    tiles_pointer,  # int32 [tiles, 2]: sequence, block of query rows
    slopes_pointer,  # float32 [H] or null
    seed_pointer,  # int64 [1] or null
    query_stride,
    key_stride,
    value_stride,
    num_tokens,
    scale,
    dropout,
    NUM_HEADS: tl.constexpr,
    GROUP: tl.constexpr,
    HEAD_DIM: tl.constexpr,
    BLOCK_DIM: tl.constexpr,
    BLOCK_ROWS: tl.constexpr,
    BLOCK_KEYS: tl.constexpr,
    WINDOW: tl.constexpr,
    CAUSAL: tl.constexpr,
    HAS_SLOPES: tl.constexpr,
    HAS_DROPOUT: tl.constexpr,
    PRECISION: tl.constexpr,
):
    LOG2E: tl.constexpr = 1.4426950408889634
    tile = tl.program_id(0).to(tl.int64)
    head = tl.program_id(1)
    sequence = tl.load(tiles_pointer + 2 * tile)
    block = tl.load(tiles_pointer + 2 * tile + 1)
    start = tl.load(cu_seqlens_pointer + sequence).to(tl.int64)
    length = tl.load(cu_seqlens_pointer + sequence + 1).to(tl.int64) - start
    length = length.to(tl.int32)
    rows = block * BLOCK_ROWS + tl.arange(0, BLOCK_ROWS)
    columns = tl.arange(0, BLOCK_DIM)
    slope = 0.0
    if HAS_SLOPES:
        slope = tl.load(slopes_pointer + head) * LOG2E
    query_pointer += start * query_stride + head * HEAD_DIM
    key_pointer += start * key_stride + (head // GROUP) * HEAD_DIM
    value_pointer += start * value_stride + (head // GROUP) * HEAD_DIM
    query = load_rows(query_pointer, rows, columns, query_stride, length, HEAD_DIM, True)
    highest = tl.full([BLOCK_ROWS], float("-inf"), dtype=tl.float32)
    total = tl.zeros([BLOCK_ROWS], dtype=tl.float32)
    mixed = tl.zeros([BLOCK_ROWS, BLOCK_DIM], dtype=tl.float32)
    first, last, whole = key_range(block, length, BLOCK_ROWS, BLOCK_KEYS, WINDOW, CAUSAL)
    # The first walk needs no mask: its keys all exist and are all seen. The second does the rest.
    highest, total, mixed = _walk(
        query, highest, total, mixed, key_pointer, value_pointer, seed_pointer, rows, columns,
        first, whole, length, start, head, key_stride, value_stride, scale * LOG2E, slope, dropout,
        NUM_HEADS, HEAD_DIM, BLOCK_KEYS, WINDOW, CAUSAL, HAS_SLOPES, HAS_DROPOUT, PRECISION, False,
    )  # fmt: skip
    highest, total, mixed = _walk(
        query, highest, total, mixed, key_pointer, value_pointer, seed_pointer, rows, columns,
        whole, last, length, start, head, key_stride, value_stride, scale * LOG2E, slope, dropout,
        NUM_HEADS, HEAD_DIM, BLOCK_KEYS, WINDOW, CAUSAL, HAS_SLOPES, HAS_DROPOUT, PRECISION, True,
    )  # fmt: skip
    output = mixed / tl.where(total == 0.0, 1.0, total)[:, None]
    places = (start + rows)[:, None] * (NUM_HEADS * HEAD_DIM) + head * HEAD_DIM + columns[None, :]
    inside = (rows < length)[:, None] & (columns < HEAD_DIM)[None, :]
    tl.store(output_pointer + places, output.to(output_pointer.dtype.element_ty), mask=inside)
    lse = (highest + tl.log2(tl.where(total == 0.0, 1.0, total))) / LOG2E
    tl.store(lse_pointer + head * num_tokens.to(tl.int64) + start + rows, lse, mask=rows < length)


def attention_forward(
    call: Call, cu_seqlens: Tensor, tiles: Tensor, launch: Launch
) -> tuple[Tensor, Tensor]:
    """Launch the kernel. The last dimension must be contiguous, and heads lie side by side.

    Returns the output [T, H, D] and the log of each row's summed exponentials, float32 [H, T].
    """
    query, key, value = call[:3]
    num_tokens, num_heads, _ = query.shape
    output = torch.empty_like(query, memory_format=torch.contiguous_format)
    lse = torch.empty(num_heads, num_tokens, dtype=torch.float32, device=query.device)
    if len(tiles) == 0:
        return output, lse
    _attention_forward_kernel[(len(tiles), num_heads)](
        query,
        key,
        value,
        output,
        lse,
        cu_seqlens,
        tiles,
        call.slopes_H,
        call.seed,
        query.stride(0),
        key.stride(0),
        value.stride(0),
        num_tokens,
        call.scale,
        call.dropout,
        **constants(call),
        **launch.options(),
    )
    return output, lse
