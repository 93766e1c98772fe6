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

from ..common.dropout import keep_weights
from ..common.launch import on_device
from .descriptors import descriptors
from .tile import (
    add_terms,
    key_range,
    load_rows,
    loop_range,
    places_of,
    program_tile,
    row_pointer,
    shared_places,
    span,
)

if TYPE_CHECKING:
    from .blocks import Blocks
    from .config import Launch
    from .differentiable import Call


@triton.jit
def _attend(
    query,
    state,
    key_pointer,
    value_pointer,
    descriptors,
    list_pointer,
    rows,
    queries,
    columns,
    low,
    high,
    length,
    strides,
    terms,
    dropping,
    HEAD_DIM: tl.constexpr,
    BLOCK_KEYS: tl.constexpr,
    WINDOW: tl.constexpr,
    CAUSAL: tl.constexpr,
    HAS_SLOPES: tl.constexpr,
    HAS_BIAS: tl.constexpr,
    POSITIONS: tl.constexpr,
    HAS_DROPOUT: tl.constexpr,
    PRECISION: tl.constexpr,
    MASKED: tl.constexpr,
    LISTED: tl.constexpr,
    DESCRIBED: tl.constexpr,
):
    """Attend to keys low .. high - 1; return the rows' ``m_i``, ``l_i`` and ``acc``, updated."""
    m_i, l_i, acc = state
    key_stride, value_stride = strides
    key_rows, value_rows, start, column = descriptors
    seed, stream, dropout, row_base, row_offsets = dropping
    keys_at = row_pointer(key_pointer, low, key_stride, LISTED)
    values_at = row_pointer(value_pointer, low, value_stride, LISTED)
    low, high = loop_range(low, high, HAS_DROPOUT)
    for index in tl.range(low, high, BLOCK_KEYS):
        at = tl.full([], index, tl.int32)
        entries = at + tl.arange(0, BLOCK_KEYS)
        keys = places_of(list_pointer, 0, entries, high, length, LISTED)
        if DESCRIBED:
            key = key_rows.load([start + at, column])
        else:
            key = load_rows(keys_at, keys, columns, key_stride, length, HEAD_DIM, MASKED, LISTED)
        dots = tl.dot(query, tl.trans(key), input_precision=PRECISION)
        score, factor = add_terms(
            dots, rows[:, None], queries[:, None], keys[None, :], length, terms,
            WINDOW, CAUSAL, HAS_SLOPES, HAS_BIAS, POSITIONS, LISTED, MASKED,
        )  # fmt: skip
        m_new = tl.maximum(m_i, tl.max(score, axis=1) * factor)
        m_finite = m_new
        if MASKED and (WINDOW >= 0 or CAUSAL or LISTED):
            # A row without any key so far has m_new = -inf: subtract 0, because -inf + inf is NaN.
            m_finite = tl.where(m_new == float("-inf"), 0.0, m_new)
        p = tl.exp2(tl.fma(score, factor, -m_finite[:, None]))
        alpha = tl.exp2(m_i - m_finite)
        l_i = l_i * alpha + tl.sum(p, axis=1)
        if HAS_DROPOUT:
            # What is kept is divided by its probability at the end.
            key_base, key_offsets = shared_places(keys, at, BLOCK_KEYS, LISTED)
            kept = keep_weights(
                seed, stream, (row_base, row_offsets[:, None]), (key_base, key_offsets[None, :]),
                dropout,
            )  # fmt: skip
            p = tl.where(kept, p, 0.0)
        if DESCRIBED:
            value = value_rows.load([start + at, column])
        else:
            value = load_rows(
                values_at, keys, columns, value_stride, length, HEAD_DIM, MASKED, LISTED
            )
        acc = acc * alpha[:, None]
        acc = tl.dot(p.to(value.dtype), value, acc, input_precision=PRECISION)
        m_i = m_new
        if not (LISTED or DESCRIBED):
            keys_at += BLOCK_KEYS * key_stride
            values_at += BLOCK_KEYS * value_stride
    return m_i, l_i, acc


@triton.jit
def _attention_forward_kernel(
    query_pointer,  # [M, H, D]
    key_pointer,  # [T, K, D], K heads dividing H
    value_pointer,  # [T, K, D]
    key_rows,  # TMA descriptor of [T, K D] in blocks [BLOCK_KEYS, D], or null: by pointers
    value_rows,  # the same of values
    output_pointer,  # [M, H, D] contiguous
    lse_pointer,  # float32 [H, M], of powers of two
    cu_seqlens_pointer,  # int32 [B + 1]
    tiles_pointer,  # int32 [tiles, 2]: sequence, block of query rows
    cu_queries_pointer,  # int32 [B + 1], read if SUBSET
    query_places_pointer,  # int32 [M] places of the queries in their sequence, or empty
    cu_globals_pointer,  # int32 [B + 1] or empty
    globals_pointer,  # int32 [G] places of the keys that every row sees, or empty
    bias_pointer,  # [H, 2 reach + 1] or null
    slopes_pointer,  # float32 [H] or null
    seed_pointer,  # int64 [1] or null
    c2p_pointer,  # [M, H, N] products of queries and position keys, or null
    p2c_pointer,  # [T, H, N] products of keys and position queries, or null
    entries_pointer,  # int32 [2 r + 1] entry of each distance, or null
    num_queries,
    reach,
    scale,
    dropout,
    QUERY_STRIDE: tl.constexpr,
    KEY_STRIDE: tl.constexpr,
    VALUE_STRIDE: tl.constexpr,
    NUM_HEADS: tl.constexpr,
    GROUP: tl.constexpr,
    HEAD_DIM: tl.constexpr,
    BLOCK_DIM: tl.constexpr,
    BLOCK_ROWS: tl.constexpr,
    BLOCK_KEYS: tl.constexpr,
    BLOCK_TAIL: tl.constexpr,
    WINDOW: tl.constexpr,
    CAUSAL: tl.constexpr,
    SUBSET: tl.constexpr,
    HAS_GLOBALS: tl.constexpr,
    HAS_SLOPES: tl.constexpr,
    HAS_BIAS: tl.constexpr,
    POSITIONS: tl.constexpr,
    ENTRIES_REACH: tl.constexpr,
    NUM_ENTRIES: tl.constexpr,
    HAS_DROPOUT: tl.constexpr,
    PRECISION: tl.constexpr,
):
    LOG2E: tl.constexpr = 1.4426950408889634
    _tile, head, sequence, block = program_tile(tiles_pointer, NUM_HEADS)
    start, length = span(cu_seqlens_pointer, sequence)
    first_query, count = start, length
    if SUBSET:
        first_query, count = span(cu_queries_pointer, sequence)
    at = block * BLOCK_ROWS
    entries = at + tl.arange(0, BLOCK_ROWS)
    rows = places_of(query_places_pointer, first_query, entries, count, length, SUBSET)
    columns = tl.arange(0, BLOCK_DIM)
    slope = 0.0
    if HAS_SLOPES:
        slope = tl.load(slopes_pointer + head) * LOG2E
    if HAS_BIAS:
        bias_pointer += head * (2 * reach + 1)
    seed = 0
    if HAS_DROPOUT:
        seed = tl.load(seed_pointer)
    query_pointer += first_query * QUERY_STRIDE + head * HEAD_DIM
    key_pointer += start * KEY_STRIDE + (head // GROUP) * HEAD_DIM
    value_pointer += start * VALUE_STRIDE + (head // GROUP) * HEAD_DIM
    queries_at = row_pointer(query_pointer, at, QUERY_STRIDE, False)
    query = load_rows(queries_at, entries, columns, QUERY_STRIDE, count, HEAD_DIM, True, False)
    # A row may see no key, and biases may be -inf, of a whole block too. A finite maximum makes
    # such probabilities 0 here and, as lse, in backward: -inf + inf would be NaN.
    finite: tl.constexpr = HAS_BIAS or (SUBSET and WINDOW >= 0)
    lowest = -3.4028234663852886e38 if finite else float("-inf")
    m_i = tl.full([BLOCK_ROWS], lowest, dtype=tl.float32)
    l_i = tl.zeros([BLOCK_ROWS], dtype=tl.float32)
    acc = tl.zeros([BLOCK_ROWS, BLOCK_DIM], dtype=tl.float32)
    strides = (KEY_STRIDE, VALUE_STRIDE)
    # Blocks of keys that all exist lie within the sequence: what TMA loads beside pointers needs no
    # bounds. The last, ragged block would hold the next sequence's rows.
    column = (head // GROUP) * HEAD_DIM
    descriptors = (key_rows, value_rows, start.to(tl.int32), column)
    nothing = (None, None, start.to(tl.int32), column)
    positions = (
        c2p_pointer + (first_query * NUM_HEADS + head) * NUM_ENTRIES if POSITIONS % 2 else None,
        p2c_pointer + (start * NUM_HEADS + head) * NUM_ENTRIES if POSITIONS >= 2 else None,
        NUM_HEADS * NUM_ENTRIES,
        count,
        entries_pointer,
        ENTRIES_REACH,
    )
    terms = (scale * LOG2E, slope, bias_pointer, reach, positions)
    base, offsets = shared_places(rows, at, BLOCK_ROWS, SUBSET)
    dropping = (seed, sequence * NUM_HEADS + head, dropout, base, offsets)
    first, last, whole = key_range(rows, entries < count, length, BLOCK_KEYS, WINDOW, CAUSAL)
    # The first loop needs no mask: every row sees all of its keys. The second takes the rest.
    m_i, l_i, acc = _attend(
        query, (m_i, l_i, acc), key_pointer, value_pointer, descriptors, globals_pointer, rows,
        entries, columns, first, whole, length, strides, terms, dropping, HEAD_DIM, BLOCK_KEYS,
        WINDOW, CAUSAL, HAS_SLOPES, HAS_BIAS, POSITIONS, HAS_DROPOUT, PRECISION, False, False,
        key_rows is not None,
    )  # fmt: skip
    m_i, l_i, acc = _attend(
        query, (m_i, l_i, acc), key_pointer, value_pointer, nothing, globals_pointer, rows, entries,
        columns, whole, last, length, strides, terms, dropping, HEAD_DIM, BLOCK_TAIL, WINDOW,
        CAUSAL, HAS_SLOPES, HAS_BIAS, POSITIONS, HAS_DROPOUT, PRECISION, True, False, False,
    )  # fmt: skip
    if HAS_GLOBALS:
        listed, num_listed = span(cu_globals_pointer, sequence)
        m_i, l_i, acc = _attend(
            query, (m_i, l_i, acc), key_pointer, value_pointer, nothing, globals_pointer + listed,
            rows, entries, columns, num_listed * 0, num_listed, length, strides, terms, dropping,
            HEAD_DIM, BLOCK_TAIL, WINDOW, CAUSAL, HAS_SLOPES, HAS_BIAS, POSITIONS, HAS_DROPOUT,
            PRECISION, True, True, False,
        )  # fmt: skip
    total = tl.where(l_i == 0.0, 1.0, l_i)
    lse = m_i + tl.log2(total)
    if HAS_DROPOUT:
        total *= 1.0 - dropout
    output = acc / total[:, None]
    own = first_query + entries
    places = own[:, None] * (NUM_HEADS * HEAD_DIM) + head * HEAD_DIM + columns[None, :]
    inside = (entries < count)[:, None] & (columns < HEAD_DIM)[None, :]
    tl.store(output_pointer + places, output.to(output_pointer.dtype.element_ty), mask=inside)
    tl.store(lse_pointer + head.to(tl.int64) * num_queries + own, lse, mask=entries < count)


@on_device
def attention_forward(call: Call, blocks: Blocks, launch: Launch) -> tuple[Tensor, Tensor]:
    """Launch the forward kernel; each token's [heads, D] must be contiguous.

    Returns the output [M, H, D] and the log2-sum-exp2 of each row, float32 [H, M].
    """
    query = call.query_MHD
    num_queries, num_heads, _ = query.shape
    output = torch.empty_like(query, memory_format=torch.contiguous_format)
    lse = torch.empty(num_heads, num_queries, dtype=torch.float32, device=query.device)
    num_tiles = blocks.forward_tiles.shape[0]
    if num_tiles == 0:
        return output, lse
    _attention_forward_kernel[(num_tiles * num_heads,)](
        *call[:3],
        *descriptors(call, launch),
        output,
        lse,
        blocks.cu_seqlens,
        blocks.forward_tiles,
        blocks.cu_queries,
        blocks.places,
        blocks.cu_globals,
        blocks.global_places,
        *blocks.terms(call),
        *blocks.numbers(call),
        **blocks.constants(call),
        HAS_GLOBALS=blocks.global_places.shape[0] > 0,
        BLOCK_TAIL=launch.block_tail,
        **launch.options(),
    )
    return output, lse
