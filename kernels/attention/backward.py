"""The backward kernels of attention: two passes over the scores, each free of atomics.

FlashAttention-2's backward (Dao 2023) with its two halves apart: one kernel owns a block of keys
and sums over queries (gradients of key and value), one owns a block of queries and sums over keys.
Scores are computed twice; in return every sum has one owner and one order, so that results are the
same on every run.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
import triton
import triton.language as tl
from torch import Tensor

from ..common.dropout import keep_scale
from .tile import constants, key_range, load_rows, row_range, scores

if TYPE_CHECKING:
    from .config import Launches
    from .differentiable import Call, Gradients


@triton.jit
def _attention_delta_kernel(
    output_pointer,  # [T, H, D] contiguous
    grad_output_pointer,  # [T, H, D] contiguous
    delta_pointer,  # float32 [H, T]
    num_tokens,
    NUM_HEADS: tl.constexpr,
    HEAD_DIM: tl.constexpr,
    BLOCK_DIM: tl.constexpr,
    BLOCK_ROWS: tl.constexpr,
):
    rows = tl.program_id(0).to(tl.int64) * BLOCK_ROWS + tl.arange(0, BLOCK_ROWS)
    head = tl.program_id(1)
    columns = tl.arange(0, BLOCK_DIM)
    places = rows[:, None] * (NUM_HEADS * HEAD_DIM) + head * HEAD_DIM + columns[None, :]
    inside = (rows < num_tokens)[:, None] & (columns < HEAD_DIM)[None, :]
    output = tl.load(output_pointer + places, mask=inside, other=0.0).to(tl.float32)
    grad = tl.load(grad_output_pointer + places, mask=inside, other=0.0).to(tl.float32)
    place = head * num_tokens.to(tl.int64) + rows
    tl.store(delta_pointer + place, tl.sum(output * grad, axis=1), mask=rows < num_tokens)


@triton.jit
def _score_gradient(
    query,
    key,
    value,
    grad,
    lse,
    delta,
    rows,
    keys,
    length,
    start,
    head,
    seed_pointer,
    scale,
    slope,
    dropout,
    NUM_HEADS: tl.constexpr,
    WINDOW: tl.constexpr,
    CAUSAL: tl.constexpr,
    HAS_SLOPES: tl.constexpr,
    HAS_DROPOUT: tl.constexpr,
    PRECISION: tl.constexpr,
):
    """Return the kept probabilities and the gradient of the scores, float32 [rows, keys]."""
    LOG2E: tl.constexpr = 1.4426950408889634
    score = scores(
        query, key, rows, keys, length, scale * LOG2E, slope * LOG2E,
        WINDOW, CAUSAL, HAS_SLOPES, True, PRECISION,
    )  # fmt: skip
    weight = tl.exp2(score - lse[:, None] * LOG2E)
    grad_weight = tl.dot(grad, tl.trans(value), input_precision=PRECISION)
    kept = weight
    if HAS_DROPOUT:
        scaled = keep_scale(tl.load(seed_pointer), (start + rows) * NUM_HEADS + head, keys, dropout)
        grad_weight *= scaled
        kept = weight * scaled
    return kept, weight * (grad_weight - delta[:, None])


@triton.jit
def _attention_grad_query_kernel(
    query_pointer,  # [T, H, D]
    key_pointer,  # [T, K, D]
    value_pointer,  # [T, K, D]
    grad_output_pointer,  # [T, H, D] contiguous
    lse_pointer,  # float32 [H, T]
    delta_pointer,  # float32 [H, T]
    grad_query_pointer,  # [T, H, D] contiguous
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
    tile = tl.program_id(0).to(tl.int64)
    head = tl.program_id(1)
    sequence = tl.load(tiles_pointer + 2 * tile)
    block = tl.load(tiles_pointer + 2 * tile + 1)
    start = tl.load(cu_seqlens_pointer + sequence).to(tl.int64)
    length = (tl.load(cu_seqlens_pointer + sequence + 1).to(tl.int64) - start).to(tl.int32)
    rows = block * BLOCK_ROWS + tl.arange(0, BLOCK_ROWS)
    columns = tl.arange(0, BLOCK_DIM)
    slope = 0.0
    if HAS_SLOPES:
        slope = tl.load(slopes_pointer + head)
    WIDTH: tl.constexpr = NUM_HEADS * HEAD_DIM
    query_pointer += start * query_stride + head * HEAD_DIM
    key_pointer += start * key_stride + (head // GROUP) * HEAD_DIM
    value_pointer += start * value_stride + (head // GROUP) * HEAD_DIM
    grad_output_pointer += start * WIDTH + head * HEAD_DIM
    statistics = head * num_tokens.to(tl.int64) + start + rows
    lse = tl.load(lse_pointer + statistics, mask=rows < length, other=0.0)
    delta = tl.load(delta_pointer + statistics, mask=rows < length, other=0.0)
    query = load_rows(query_pointer, rows, columns, query_stride, length, HEAD_DIM, True)
    grad = load_rows(grad_output_pointer, rows, columns, WIDTH, length, HEAD_DIM, True)
    summed = tl.zeros([BLOCK_ROWS, BLOCK_DIM], dtype=tl.float32)
    first, last, _whole = key_range(block, length, BLOCK_ROWS, BLOCK_KEYS, WINDOW, CAUSAL)
    for at in tl.range(first, last, BLOCK_KEYS):
        keys = at + tl.arange(0, BLOCK_KEYS)
        key = load_rows(key_pointer, keys, columns, key_stride, length, HEAD_DIM, True)
        value = load_rows(value_pointer, keys, columns, value_stride, length, HEAD_DIM, True)
        _kept, grad_score = _score_gradient(
            query, key, value, grad, lse, delta, rows, keys, length, start, head, seed_pointer,
            scale, slope, dropout, NUM_HEADS, WINDOW, CAUSAL, HAS_SLOPES, HAS_DROPOUT, PRECISION,
        )  # fmt: skip
        summed = tl.dot(grad_score.to(key.dtype), key, summed, input_precision=PRECISION)
    places = (start + rows)[:, None] * WIDTH + head * HEAD_DIM + columns[None, :]
    inside = (rows < length)[:, None] & (columns < HEAD_DIM)[None, :]
    kind = grad_query_pointer.dtype.element_ty
    tl.store(grad_query_pointer + places, (summed * scale).to(kind), mask=inside)


@triton.jit
def _attention_grad_key_value_kernel(
    query_pointer,  # [T, H, D]
    key_pointer,  # [T, K, D]
    value_pointer,  # [T, K, D]
    grad_output_pointer,  # [T, H, D] contiguous
    lse_pointer,  # float32 [H, T]
    delta_pointer,  # float32 [H, T]
    grad_key_pointer,  # [T, K, D] contiguous
    grad_value_pointer,  # [T, K, D] contiguous
    cu_seqlens_pointer,  # int32 [B + 1]
    tiles_pointer,  # int32 [tiles, 2]: sequence, block of keys
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
    tile = tl.program_id(0).to(tl.int64)
    key_head = tl.program_id(1)
    sequence = tl.load(tiles_pointer + 2 * tile)
    block = tl.load(tiles_pointer + 2 * tile + 1)
    start = tl.load(cu_seqlens_pointer + sequence).to(tl.int64)
    length = (tl.load(cu_seqlens_pointer + sequence + 1).to(tl.int64) - start).to(tl.int32)
    keys = block * BLOCK_KEYS + tl.arange(0, BLOCK_KEYS)
    columns = tl.arange(0, BLOCK_DIM)
    WIDTH: tl.constexpr = NUM_HEADS * HEAD_DIM
    KEY_WIDTH: tl.constexpr = NUM_HEADS // GROUP * HEAD_DIM
    key_pointer += start * key_stride + key_head * HEAD_DIM
    value_pointer += start * value_stride + key_head * HEAD_DIM
    key = load_rows(key_pointer, keys, columns, key_stride, length, HEAD_DIM, True)
    value = load_rows(value_pointer, keys, columns, value_stride, length, HEAD_DIM, True)
    grad_key = tl.zeros([BLOCK_KEYS, BLOCK_DIM], dtype=tl.float32)
    grad_value = tl.zeros([BLOCK_KEYS, BLOCK_DIM], dtype=tl.float32)
    first, last = row_range(block, length, BLOCK_ROWS, BLOCK_KEYS, WINDOW, CAUSAL)
    for member in tl.range(0, GROUP):
        head = key_head * GROUP + member
        slope = 0.0
        if HAS_SLOPES:
            slope = tl.load(slopes_pointer + head)
        queries = query_pointer + start * query_stride + head * HEAD_DIM
        grads = grad_output_pointer + start * WIDTH + head * HEAD_DIM
        for at in tl.range(first, last, BLOCK_ROWS):
            rows = at + tl.arange(0, BLOCK_ROWS)
            statistics = head * num_tokens.to(tl.int64) + start + rows
            lse = tl.load(lse_pointer + statistics, mask=rows < length, other=0.0)
            delta = tl.load(delta_pointer + statistics, mask=rows < length, other=0.0)
            query = load_rows(queries, rows, columns, query_stride, length, HEAD_DIM, True)
            grad = load_rows(grads, rows, columns, WIDTH, length, HEAD_DIM, True)
            kept, grad_score = _score_gradient(
                query, key, value, grad, lse, delta, rows, keys, length, start, head, seed_pointer,
                scale, slope, dropout, NUM_HEADS, WINDOW, CAUSAL, HAS_SLOPES, HAS_DROPOUT,
                PRECISION,
            )  # fmt: skip
            kind = query.dtype
            grad_value = tl.dot(
                tl.trans(kept.to(kind)), grad, grad_value, input_precision=PRECISION
            )
            grad_key = tl.dot(
                tl.trans(grad_score.to(kind)), query, grad_key, input_precision=PRECISION
            )
    places = (start + keys)[:, None] * KEY_WIDTH + key_head * HEAD_DIM + columns[None, :]
    inside = (keys < length)[:, None] & (columns < HEAD_DIM)[None, :]
    kind = grad_key_pointer.dtype.element_ty
    tl.store(grad_key_pointer + places, (grad_key * scale).to(kind), mask=inside)
    tl.store(grad_value_pointer + places, grad_value.to(kind), mask=inside)


def attention_backward(
    grad_output_THD: Tensor,
    output_THD: Tensor,
    lse_HT: Tensor,
    call: Call,
    cu_seqlens: Tensor,
    query_tiles: Tensor,
    key_tiles: Tensor,
    launches: Launches,
) -> Gradients:
    """Launch the kernels. Returns the gradients of query, key and value, contiguous."""
    query, key, value = call[:3]
    num_tokens, num_heads, head_dim = query.shape
    grad_query, grad_key, grad_value = (
        torch.empty_like(x, memory_format=torch.contiguous_format) for x in (query, key, value)
    )
    if len(query_tiles) == 0:
        return grad_query, grad_key, grad_value
    shared = constants(call)
    grad_output = grad_output_THD.contiguous()
    delta = torch.empty_like(lse_HT)
    _attention_delta_kernel[(triton.cdiv(num_tokens, 64), num_heads)](
        output_THD,
        grad_output,
        delta,
        num_tokens,
        NUM_HEADS=num_heads,
        HEAD_DIM=head_dim,
        BLOCK_DIM=shared["BLOCK_DIM"],
        BLOCK_ROWS=64,
        num_warps=4,
    )
    inputs = (query, key, value, grad_output, lse_HT, delta)
    strides = (query.stride(0), key.stride(0), value.stride(0))
    numbers = (call.slopes_H, call.seed, *strides, num_tokens, call.scale, call.dropout)
    _attention_grad_query_kernel[(len(query_tiles), num_heads)](
        *inputs,
        grad_query,
        cu_seqlens,
        query_tiles,
        *numbers,
        **shared,
        **launches.query.options(),
    )
    _attention_grad_key_value_kernel[(len(key_tiles), key.shape[1])](
        *inputs,
        grad_key,
        grad_value,
        cu_seqlens,
        key_tiles,
        *numbers,
        **shared,
        **launches.key.options(),
    )
    return grad_query, grad_key, grad_value
