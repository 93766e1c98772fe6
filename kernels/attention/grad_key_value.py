"""The attention gradients of key and value: a program owns a block of keys, loops over queries.

How it works: scores are computed transposed, [keys, rows], as ``key @ query.T`` (FlashAttention-2,
Dao 2023, and Triton's tutorial 06). Probabilities and their gradient are then what the products
``dv += p @ do`` and ``dk += ds @ query`` read from registers: the result of one product is the left
operand of the next, and Hopper's wgmma need not wait for a transposition through shared memory.
Neither rows nor keys beyond the last need a mask: a row that does not exist has an infinite lse and
with it probabilities of 0, and what a key that does not exist collects is not stored.
"""

import triton
import triton.language as tl

from .score_gradient import score_gradient, store_by_distance
from .tile import (
    load_rows,
    loop_range,
    places_of,
    program_tile,
    row_pointer,
    row_range,
    shared_places,
    span,
)


@triton.jit
def _add_key_gradients(
    grads,
    key,
    value,
    pointers,
    keys,
    columns,
    low,
    high,
    span_of_rows,
    length,
    statistics,
    strides,
    terms,
    dropping,
    sums,
    HEAD_DIM: tl.constexpr,
    BLOCK_ROWS: tl.constexpr,
    WINDOW: tl.constexpr,
    CAUSAL: tl.constexpr,
    SUBSET: tl.constexpr,
    HAS_SLOPES: tl.constexpr,
    HAS_BIAS: tl.constexpr,
    POSITIONS: tl.constexpr,
    HAS_DROPOUT: tl.constexpr,
    PRECISION: tl.constexpr,
    MASKED: tl.constexpr,
    LISTED: tl.constexpr,
    BEYOND: tl.constexpr,
):
    """Add what queries low .. high - 1 contribute to ``dk`` and ``dv``.

    MASKED: some of these queries are beyond the last one.
    """
    dk, dv, below, above = grads
    query_pointer, output_grad_pointer, lse_pointer, delta_pointer, places_pointer = pointers
    query_stride, output_stride = strides
    first_query, count = span_of_rows
    seed, stream, dropout, key_base, key_offsets = dropping
    key_places = (key_base, key_offsets[:, None])
    queries_at = row_pointer(query_pointer, low, query_stride, False)
    output_grads_at = row_pointer(output_grad_pointer, low, output_stride, False)
    low, high = loop_range(low, high, HAS_DROPOUT or WINDOW >= 0)
    for index in tl.range(low, high, BLOCK_ROWS):
        at = tl.full([], index, tl.int32)
        entries = at + tl.arange(0, BLOCK_ROWS)
        rows = places_of(places_pointer, first_query, entries, count, length, SUBSET)
        if MASKED:
            here = entries < count
            lse = tl.load(lse_pointer + statistics + entries, mask=here, other=float("inf"))
            delta = tl.load(delta_pointer + statistics + entries, mask=here, other=0.0)
        else:
            lse = tl.load(lse_pointer + statistics + entries)
            delta = tl.load(delta_pointer + statistics + entries)
        query = load_rows(
            queries_at, entries, columns, query_stride, count, HEAD_DIM, MASKED, False
        )
        do = load_rows(
            output_grads_at, entries, columns, output_stride, count, HEAD_DIM, MASKED, False
        )
        dots = tl.dot(key, tl.trans(query), input_precision=PRECISION)
        dp = tl.dot(value, tl.trans(do), input_precision=PRECISION)
        row_base, row_offsets = shared_places(rows, at, BLOCK_ROWS, SUBSET)
        row_places = (row_base, row_offsets[None, :])
        p, ds = score_gradient(
            dots, dp, lse[None, :], delta[None, :], rows[None, :], entries[None, :], keys[:, None],
            length, terms, (seed, stream, dropout, row_places, key_places), WINDOW, CAUSAL,
            HAS_SLOPES, HAS_BIAS, POSITIONS, HAS_DROPOUT, False, WINDOW >= 0 or CAUSAL,
        )  # fmt: skip
        dv = tl.dot(p.to(do.dtype), do, dv, input_precision=PRECISION)
        ds_half = ds.to(query.dtype)
        dk = tl.dot(ds_half, query, dk, input_precision=PRECISION)
        if POSITIONS >= 2:
            _sums, _listed, _num_listed, _sums_stride, ds_at = sums
            there = (keys < length)[:, None] & (entries < count)[None, :]
            tl.store(ds_at + rows[None, :], ds_half, mask=there)
        if HAS_BIAS and LISTED:
            _scale, _slope, _bias, reach, _positions = terms
            sums_pointer, listed, num_listed, sums_stride, _ds_at = sums
            below, above = store_by_distance(
                sums_pointer, ds, keys, rows, listed, (below, above), length, num_listed, reach,
                sums_stride, BEYOND,
            )  # fmt: skip
        queries_at += BLOCK_ROWS * query_stride
        output_grads_at += BLOCK_ROWS * output_stride
    return dk, dv, below, above


@triton.jit
def _attention_grad_key_value_kernel(
    query_pointer,  # [M, H, D]
    key_pointer,  # [T, K, D]
    value_pointer,  # [T, K, D]
    grad_output_pointer,  # [M, H, D] contiguous
    lse_pointer,  # float32 [H, M], of powers of two
    delta_pointer,  # float32 [H, M]
    grad_key_pointer,  # [T, K, D] contiguous, or heads of [T, H + 2 K, D]
    grad_value_pointer,  # [T, K, D] likewise
    bias_sums_pointer,  # float32 [G, H, 2 reach + 1] zeros, of listed keys, or null
    ds_pointer,  # [T, H, rows_stride] gradients of scores, or null
    cu_seqlens_pointer,  # int32 [B + 1]
    tiles_pointer,  # int32 [tiles, 2]: sequence, block of keys
    cu_queries_pointer,  # int32 [B + 1], read if SUBSET
    query_places_pointer,  # int32 [M] or nothing
    cu_listed_pointer,  # int32 [B + 1] or nothing
    listed_pointer,  # int32 [G] places of the program's keys, or empty: all
    bias_pointer,  # [H, 2 reach + 1] or null
    slopes_pointer,  # float32 [H] or null
    seed_pointer,  # int64 [1] or null
    c2p_pointer,  # [M, H, N] or null
    p2c_pointer,  # [T, H, N] or null
    entries_pointer,  # int32 [2 r + 1] or null
    rows_stride,
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
    WINDOW: tl.constexpr,
    CAUSAL: tl.constexpr,
    SUBSET: tl.constexpr,
    LISTED: tl.constexpr,
    BEYOND: tl.constexpr,  # the window whose rows another kernel adds to the bias' gradient
    HAS_SLOPES: tl.constexpr,
    HAS_BIAS: tl.constexpr,
    POSITIONS: tl.constexpr,
    ENTRIES_REACH: tl.constexpr,
    NUM_ENTRIES: tl.constexpr,
    HAS_DROPOUT: tl.constexpr,
    JOINED: tl.constexpr,
    PRECISION: tl.constexpr,
):
    LOG2E: tl.constexpr = 1.4426950408889634
    KEY_HEADS: tl.constexpr = NUM_HEADS // GROUP
    _tile, key_head, sequence, block = program_tile(tiles_pointer, KEY_HEADS)
    start, length = span(cu_seqlens_pointer, sequence)
    first_query, count = start, length
    if SUBSET:
        first_query, count = span(cu_queries_pointer, sequence)
    first_listed, num_listed = start, length
    if LISTED:
        first_listed, num_listed = span(cu_listed_pointer, sequence)
    at = block * BLOCK_KEYS
    listed = at + tl.arange(0, BLOCK_KEYS)
    keys = places_of(listed_pointer, first_listed, listed, num_listed, length, LISTED)
    columns = tl.arange(0, BLOCK_DIM)
    seed = 0
    if HAS_DROPOUT:
        seed = tl.load(seed_pointer)
    WIDTH: tl.constexpr = NUM_HEADS * HEAD_DIM
    key_pointer += start * KEY_STRIDE + key_head * HEAD_DIM
    value_pointer += start * VALUE_STRIDE + key_head * HEAD_DIM
    keys_at = row_pointer(key_pointer, at, KEY_STRIDE, LISTED)
    key = load_rows(keys_at, keys, columns, KEY_STRIDE, length, HEAD_DIM, True, LISTED)
    values_at = row_pointer(value_pointer, at, VALUE_STRIDE, LISTED)
    value = load_rows(values_at, keys, columns, VALUE_STRIDE, length, HEAD_DIM, True, LISTED)
    dk = tl.zeros([BLOCK_KEYS, BLOCK_DIM], dtype=tl.float32)
    dv = tl.zeros([BLOCK_KEYS, BLOCK_DIM], dtype=tl.float32)
    first, last, whole = row_range(
        block, length, count, BLOCK_ROWS, BLOCK_KEYS, WINDOW, CAUSAL, SUBSET or LISTED
    )
    for member in tl.range(0, GROUP):
        head = key_head * GROUP + member
        slope = 0.0
        if HAS_SLOPES:
            slope = tl.load(slopes_pointer + head) * LOG2E
        # Within tuples: a variable cannot hold a null pointer.
        bias_row = head * (2 * reach + 1)
        queries = query_pointer + first_query * QUERY_STRIDE + head * HEAD_DIM
        output_grads = grad_output_pointer + first_query * WIDTH + head * HEAD_DIM
        pointers = (queries, output_grads, lse_pointer, delta_pointer, query_places_pointer)
        statistics = head.to(tl.int64) * num_queries + first_query
        positions = (
            c2p_pointer + (first_query * NUM_HEADS + head) * NUM_ENTRIES if POSITIONS % 2 else None,
            p2c_pointer + (start * NUM_HEADS + head) * NUM_ENTRIES if POSITIONS >= 2 else None,
            NUM_HEADS * NUM_ENTRIES,
            count,
            entries_pointer,
            ENTRIES_REACH,
        )
        terms = (
            scale * LOG2E,
            slope,
            bias_pointer + bias_row if HAS_BIAS else None,
            reach,
            positions,
        )
        base, offsets = shared_places(keys, at, BLOCK_KEYS, LISTED)
        dropping = (seed, sequence * NUM_HEADS + head, dropout, base, offsets)
        below = tl.zeros([BLOCK_KEYS], dtype=tl.float32)
        above = tl.zeros([BLOCK_KEYS], dtype=tl.float32)
        own = ((start + keys)[:, None] * NUM_HEADS + head).to(tl.int64)
        sums_row = (first_listed * NUM_HEADS + head) * (2 * reach + 1)
        sums_stride = NUM_HEADS * (2 * reach + 1)
        sums = (
            bias_sums_pointer + sums_row if HAS_BIAS and LISTED else None,
            listed,
            num_listed,
            sums_stride,
            ds_pointer + own * rows_stride if POSITIONS >= 2 else None,
        )
        dk, dv, below, above = _add_key_gradients(
            (dk, dv, below, above), key, value, pointers, keys, columns, first, whole,
            (first_query, count), length, statistics, (QUERY_STRIDE, WIDTH), terms, dropping, sums,
            HEAD_DIM, BLOCK_ROWS, WINDOW, CAUSAL, SUBSET, HAS_SLOPES, HAS_BIAS, POSITIONS,
            HAS_DROPOUT, PRECISION, False, LISTED, BEYOND,
        )  # fmt: skip
        dk, dv, below, above = _add_key_gradients(
            (dk, dv, below, above), key, value, pointers, keys, columns, whole, last,
            (first_query, count), length, statistics, (QUERY_STRIDE, WIDTH), terms, dropping, sums,
            HEAD_DIM, BLOCK_ROWS, WINDOW, CAUSAL, SUBSET, HAS_SLOPES, HAS_BIAS, POSITIONS,
            HAS_DROPOUT, PRECISION, True, LISTED, BEYOND,
        )  # fmt: skip
        if HAS_BIAS and LISTED:
            ends = bias_sums_pointer + sums_row + listed.to(tl.int64) * sums_stride
            tl.store(ends, below, mask=listed < num_listed)
            tl.store(ends + 2 * reach, above, mask=listed < num_listed)
    if HAS_DROPOUT:
        dv *= 1.0 / (1.0 - dropout)
    KEY_WIDTH: tl.constexpr = KEY_HEADS * HEAD_DIM
    GRAD_WIDTH: tl.constexpr = WIDTH + 2 * KEY_WIDTH if JOINED else KEY_WIDTH
    places = (start + keys)[:, None] * GRAD_WIDTH + key_head * HEAD_DIM + columns[None, :]
    inside = (keys < length)[:, None] & (columns < HEAD_DIM)[None, :]
    kind = grad_key_pointer.dtype.element_ty
    tl.store(grad_key_pointer + places, (dk * scale).to(kind), mask=inside)
    tl.store(grad_value_pointer + places, dv.to(kind), mask=inside)
