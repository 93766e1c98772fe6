"""Attention over packed sequences, softmax online: the forward kernel.

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
from .tile import key_range, load_rows, places_of, scores, span

if TYPE_CHECKING:
    from .blocks import Blocks
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
    bias_pointer,
    seed_pointer,
    list_pointer,
    rows,
    columns,
    low,
    high,
    length,
    start,
    head,
    key_stride,
    value_stride,
    reach,
    scale,
    slope,
    dropout,
    NUM_HEADS: tl.constexpr,
    HEAD_DIM: tl.constexpr,
    BLOCK_KEYS: tl.constexpr,
    WINDOW: tl.constexpr,
    CAUSAL: tl.constexpr,
    HAS_SLOPES: tl.constexpr,
    HAS_BIAS: tl.constexpr,
    HAS_DROPOUT: tl.constexpr,
    PRECISION: tl.constexpr,
    MASKED: tl.constexpr,
    LISTED: tl.constexpr,
):
    """Take the keys low .. high into the running maximum, sum and mix of a block of rows."""
    for at in tl.range(low, high, BLOCK_KEYS):
        entries = at + tl.arange(0, BLOCK_KEYS)
        keys = places_of(list_pointer, 0, entries, high, length, LISTED)
        key = load_rows(key_pointer, keys, columns, key_stride, length, HEAD_DIM, MASKED)
        score = scores(
            query, key, rows, keys, length, scale, slope, bias_pointer, reach,
            WINDOW, CAUSAL, HAS_SLOPES, HAS_BIAS, LISTED, MASKED, PRECISION,
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
    query_pointer,  # [M, H, D]
    key_pointer,  # [T, K, D], K heads dividing H
    value_pointer,  # [T, K, D]
    output_pointer,  # [M, H, D] contiguous
    lse_pointer,  # float32 [H, M]
    cu_seqlens_pointer,  # int32 [B + 1]
    tiles_pointer,  # int32 [tiles, 2]: sequence, block of query rows
    cu_queries_pointer,  # int32 [B + 1] or, where every row is a query, nothing
    query_places_pointer,  # int32 [M] the queries' places, or nothing
    cu_globals_pointer,  # int32 [B + 1] or nothing
    globals_pointer,  # int32 [G] places of the keys that every row sees, or nothing
    bias_pointer,  # [H, 2 reach + 1] or null
    slopes_pointer,  # float32 [H] or null
    seed_pointer,  # int64 [1] or null
    query_stride,
    key_stride,
    value_stride,
    num_queries,
    reach,
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
    SUBSET: tl.constexpr,
    HAS_GLOBALS: tl.constexpr,
    HAS_SLOPES: tl.constexpr,
    HAS_BIAS: tl.constexpr,
    HAS_DROPOUT: tl.constexpr,
    PRECISION: tl.constexpr,
):
    LOG2E: tl.constexpr = 1.4426950408889634
    tile = tl.program_id(0).to(tl.int64)
    head = tl.program_id(1)
    sequence = tl.load(tiles_pointer + 2 * tile)
    block = tl.load(tiles_pointer + 2 * tile + 1)
    start, length = span(cu_seqlens_pointer, sequence)
    first_query, count = start, length
    if SUBSET:
        first_query, count = span(cu_queries_pointer, sequence)
    entries = block * BLOCK_ROWS + tl.arange(0, BLOCK_ROWS)
    rows = places_of(query_places_pointer, first_query, entries, count, length, SUBSET)
    columns = tl.arange(0, BLOCK_DIM)
    slope = 0.0
    if HAS_SLOPES:
        slope = tl.load(slopes_pointer + head)
    if HAS_BIAS:
        bias_pointer += head * (2 * reach + 1)
    query_pointer += first_query * query_stride + head * HEAD_DIM
    key_pointer += start * key_stride + (head // GROUP) * HEAD_DIM
    value_pointer += start * value_stride + (head // GROUP) * HEAD_DIM
    query = load_rows(query_pointer, entries, columns, query_stride, count, HEAD_DIM, True)
    highest = tl.full([BLOCK_ROWS], float("-inf"), dtype=tl.float32)
    total = tl.zeros([BLOCK_ROWS], dtype=tl.float32)
    mixed = tl.zeros([BLOCK_ROWS, BLOCK_DIM], dtype=tl.float32)
    first, last, whole = key_range(rows, length, BLOCK_KEYS, WINDOW, CAUSAL)
    # The first walk needs no mask: its keys all exist and are all seen. The second does the rest.
    highest, total, mixed = _walk(
        query, highest, total, mixed, key_pointer, value_pointer, bias_pointer, seed_pointer,
        globals_pointer, rows, columns, first, whole, length, start, head, key_stride, value_stride,
        reach, scale, slope, dropout, NUM_HEADS, HEAD_DIM, BLOCK_KEYS, WINDOW, CAUSAL, HAS_SLOPES,
        HAS_BIAS, HAS_DROPOUT, PRECISION, False, False,
    )  # fmt: skip
    highest, total, mixed = _walk(
        query, highest, total, mixed, key_pointer, value_pointer, bias_pointer, seed_pointer,
        globals_pointer, rows, columns, whole, last, length, start, head, key_stride, value_stride,
        reach, scale, slope, dropout, NUM_HEADS, HEAD_DIM, BLOCK_KEYS, WINDOW, CAUSAL, HAS_SLOPES,
        HAS_BIAS, HAS_DROPOUT, PRECISION, True, False,
    )  # fmt: skip
    if HAS_GLOBALS:
        listed, num_listed = span(cu_globals_pointer, sequence)
        highest, total, mixed = _walk(
            query, highest, total, mixed, key_pointer, value_pointer, bias_pointer, seed_pointer,
            globals_pointer + listed, rows, columns, 0, num_listed, length, start, head, key_stride,
            value_stride, reach, scale, slope, dropout, NUM_HEADS, HEAD_DIM, BLOCK_KEYS, WINDOW,
            CAUSAL, HAS_SLOPES, HAS_BIAS, HAS_DROPOUT, PRECISION, True, True,
        )  # fmt: skip
    output = mixed / tl.where(total == 0.0, 1.0, total)[:, None]
    own = first_query + entries
    places = own[:, None] * (NUM_HEADS * HEAD_DIM) + head * HEAD_DIM + columns[None, :]
    inside = (entries < count)[:, None] & (columns < HEAD_DIM)[None, :]
    tl.store(output_pointer + places, output.to(output_pointer.dtype.element_ty), mask=inside)
    lse = (highest + tl.log2(tl.where(total == 0.0, 1.0, total))) / LOG2E
    tl.store(lse_pointer + head * num_queries.to(tl.int64) + own, lse, mask=entries < count)


def attention_forward(call: Call, blocks: Blocks, launch: Launch) -> tuple[Tensor, Tensor]:
    """Launch the kernel. The last dimension must be contiguous, and heads lie side by side.

    Returns the output [M, H, D] and the log of each row's summed exponentials, float32 [H, M].
    """
    query = call.query_MHD
    num_queries, num_heads, _ = query.shape
    output = torch.empty_like(query, memory_format=torch.contiguous_format)
    lse = torch.empty(num_heads, num_queries, dtype=torch.float32, device=query.device)
    if len(blocks.forward_tiles) == 0:
        return output, lse
    _attention_forward_kernel[(len(blocks.forward_tiles), num_heads)](
        *call[:3],
        output,
        lse,
        blocks.cu_seqlens,
        blocks.forward_tiles,
        blocks.cu_queries,
        blocks.places,
        blocks.cu_globals,
        blocks.global_places,
        *blocks.numbers(call),
        **blocks.constants(call),
        HAS_GLOBALS=len(blocks.global_places) > 0,
        **launch.options(),
    )
    return output, lse
