"""Attention over packed sequences with online softmax: the forward kernel.

How it works (FlashAttention-2, Dao 2023): a program owns a block of query rows of one sequence and
one head, and loops over blocks of that sequence's keys. It keeps three values a row, named as in
the paper: the running maximum ``m_i``, the running sum of exponentials ``l_i`` and the output
before division, ``acc``. At each block of keys ``alpha = exp(m_i - m_new)`` rescales ``l_i`` and
``acc``, and ``p = exp(score - m_new)`` is added. Nothing of size L x L is stored: 8 D bytes of bf16
a token and head are read and written, for 4 L D FLOPs. Exponentials are powers of two: scores carry
a factor log2 e. Programs come from a list of (sequence, block) made once a batch, so that no
program computes padding.
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
def _attend(
    query,
    m_i,
    l_i,
    acc,
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
    """Attend to the keys low .. high; return ``m_i``, ``l_i`` and ``acc``, updated."""
    for at in tl.range(low, high, BLOCK_KEYS):
        entries = at + tl.arange(0, BLOCK_KEYS)
        keys = places_of(list_pointer, 0, entries, high, length, LISTED)
        key = load_rows(key_pointer, keys, columns, key_stride, length, HEAD_DIM, MASKED)
        score = scores(
            query, key, rows, keys, length, scale, slope, bias_pointer, reach,
            WINDOW, CAUSAL, HAS_SLOPES, HAS_BIAS, LISTED, MASKED, PRECISION,
        )  # fmt: skip
        m_new = tl.maximum(m_i, tl.max(score, axis=1))
        m_finite = m_new
        if MASKED:
            # A row without any key so far has m_new = -inf: subtract 0, because -inf + inf is NaN.
            m_finite = tl.where(m_new == float("-inf"), 0.0, m_new)
        p = tl.exp2(score - m_finite[:, None])
        alpha = tl.exp2(m_i - m_finite)
        l_i = l_i * alpha + tl.sum(p, axis=1)
        if HAS_DROPOUT:
            tokens = (start + rows) * NUM_HEADS + head
            p *= keep_scale(tl.load(seed_pointer), tokens, keys, dropout)
        value = load_rows(value_pointer, keys, columns, value_stride, length, HEAD_DIM, MASKED)
        acc = acc * alpha[:, None]
        acc = tl.dot(p.to(value.dtype), value, acc, input_precision=PRECISION)
        m_i = m_new
    return m_i, l_i, acc


@triton.jit
def _attention_forward_kernel(
    query_pointer,  # [M, H, D]
    key_pointer,  # [T, K, D], K heads dividing H
    value_pointer,  # [T, K, D]
    output_pointer,  # [M, H, D] contiguous
    lse_pointer,  # float32 [H, M]
    cu_seqlens_pointer,  # int32 [B + 1]
    tiles_pointer,  # int32 [tiles, 2]: sequence, block of query rows
    cu_queries_pointer,  # int32 [B + 1], empty where every row is a query
    query_places_pointer,  # int32 [M] places of the queries in their sequence, or empty
    cu_globals_pointer,  # int32 [B + 1] or empty
    globals_pointer,  # int32 [G] places of the keys that every row sees, or empty
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
    m_i = tl.full([BLOCK_ROWS], float("-inf"), dtype=tl.float32)
    l_i = tl.zeros([BLOCK_ROWS], dtype=tl.float32)
    acc = tl.zeros([BLOCK_ROWS, BLOCK_DIM], dtype=tl.float32)
    first, last, whole = key_range(rows, length, BLOCK_KEYS, WINDOW, CAUSAL)
    # The first loop needs no mask: every row sees all of its keys. The second takes the rest.
    m_i, l_i, acc = _attend(
        query, m_i, l_i, acc, key_pointer, value_pointer, bias_pointer, seed_pointer,
        globals_pointer, rows, columns, first, whole, length, start, head, key_stride, value_stride,
        reach, scale, slope, dropout, NUM_HEADS, HEAD_DIM, BLOCK_KEYS, WINDOW, CAUSAL, HAS_SLOPES,
        HAS_BIAS, HAS_DROPOUT, PRECISION, False, False,
    )  # fmt: skip
    m_i, l_i, acc = _attend(
        query, m_i, l_i, acc, key_pointer, value_pointer, bias_pointer, seed_pointer,
        globals_pointer, rows, columns, whole, last, length, start, head, key_stride, value_stride,
        reach, scale, slope, dropout, NUM_HEADS, HEAD_DIM, BLOCK_KEYS, WINDOW, CAUSAL, HAS_SLOPES,
        HAS_BIAS, HAS_DROPOUT, PRECISION, True, False,
    )  # fmt: skip
    if HAS_GLOBALS:
        listed, num_listed = span(cu_globals_pointer, sequence)
        m_i, l_i, acc = _attend(
            query, m_i, l_i, acc, key_pointer, value_pointer, bias_pointer, seed_pointer,
            globals_pointer + listed, rows, columns, 0, num_listed, length, start, head, key_stride,
            value_stride, reach, scale, slope, dropout, NUM_HEADS, HEAD_DIM, BLOCK_KEYS, WINDOW,
            CAUSAL, HAS_SLOPES, HAS_BIAS, HAS_DROPOUT, PRECISION, True, True,
        )  # fmt: skip
    output = acc / tl.where(l_i == 0.0, 1.0, l_i)[:, None]
    own = first_query + entries
    places = own[:, None] * (NUM_HEADS * HEAD_DIM) + head * HEAD_DIM + columns[None, :]
    inside = (entries < count)[:, None] & (columns < HEAD_DIM)[None, :]
    tl.store(output_pointer + places, output.to(output_pointer.dtype.element_ty), mask=inside)
    lse = (m_i + tl.log2(tl.where(l_i == 0.0, 1.0, l_i))) / LOG2E
    tl.store(lse_pointer + head * num_queries.to(tl.int64) + own, lse, mask=entries < count)


def attention_forward(call: Call, blocks: Blocks, launch: Launch) -> tuple[Tensor, Tensor]:
    """Launch the kernel on tensors whose tokens are [heads, D] contiguous.

    Returns the output [M, H, D] and the log-sum-exp of each row, float32 [H, M].
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
