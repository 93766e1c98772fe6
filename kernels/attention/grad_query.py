"""The attention gradients of the query and of the relative bias.

A program owns a block of queries and loops over keys. Names are those of FlashAttention-2: ``do``
is the gradient of the output, ``ds`` of the scores, ``dq`` of the query.
"""

import triton
import triton.language as tl

from .score_gradient import add_by_distance, score_gradient
from .tile import (
    key_range,
    load_rows,
    loop_range,
    places_of,
    program_tile,
    row_pointer,
    shared_places,
    span,
)


@triton.jit
def _add_query_gradient(
    dq,
    rows_given,
    key_pointer,
    value_pointer,
    bias_sums_pointer,
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
):
    """Add what keys low .. high - 1 contribute to ``dq`` and to the relative bias's gradient.

    For disentangled attention, the gradients of the scores are stored at ``ds_rows`` as well.
    """
    query, do, lse, delta, ds_rows = rows_given
    key_stride, value_stride = strides
    seed, stream, dropout, row_base, row_offsets = dropping
    row_places = (row_base, row_offsets[:, None])
    keys_at = row_pointer(key_pointer, low, key_stride, LISTED)
    values_at = row_pointer(value_pointer, low, value_stride, LISTED)
    low, high = loop_range(low, high, HAS_DROPOUT)
    for index in tl.range(low, high, BLOCK_KEYS):
        at = tl.full([], index, tl.int32)
        entries = at + tl.arange(0, BLOCK_KEYS)
        keys = places_of(list_pointer, 0, entries, high, length, LISTED)
        key = load_rows(keys_at, keys, columns, key_stride, length, HEAD_DIM, MASKED, LISTED)
        value = load_rows(values_at, keys, columns, value_stride, length, HEAD_DIM, MASKED, LISTED)
        dots = tl.dot(query, tl.trans(key), input_precision=PRECISION)
        dp = tl.dot(do, tl.trans(value), input_precision=PRECISION)
        key_base, key_offsets = shared_places(keys, at, BLOCK_KEYS, LISTED)
        key_places = (key_base, key_offsets[None, :])
        _p, ds = score_gradient(
            dots, dp, lse[:, None], delta[:, None], rows[:, None], queries[:, None], keys[None, :],
            length, terms, (seed, stream, dropout, row_places, key_places), WINDOW, CAUSAL,
            HAS_SLOPES, HAS_BIAS, POSITIONS, HAS_DROPOUT, LISTED, MASKED,
        )  # fmt: skip
        if HAS_BIAS and not LISTED:
            # The kernel of key and value adds the distances to listed keys.
            _scale, _slope, _bias, reach, _positions = terms
            far = tl.cdiv(reach, BLOCK_KEYS)
            _places, exist = ds_rows
            add_by_distance(bias_sums_pointer, ds, rows, exist, at, far, BLOCK_KEYS)
        ds_half = ds.to(key.dtype)
        if POSITIONS % 2:
            places, exist = ds_rows
            tl.store(places + keys[None, :], ds_half, mask=exist & (keys < length)[None, :])
        dq = tl.dot(ds_half, key, dq, input_precision=PRECISION)
        if not LISTED:
            keys_at += BLOCK_KEYS * key_stride
            values_at += BLOCK_KEYS * value_stride
    return dq


@triton.jit
def _attention_grad_query_kernel(
    query_pointer,  # [M, H, D]
    key_pointer,  # [T, K, D]
    value_pointer,  # [T, K, D]
    grad_output_pointer,  # [M, H, D] contiguous
    lse_pointer,  # float32 [H, M], of powers of two
    delta_pointer,  # float32 [H, M]
    grad_query_pointer,  # [M, H, D] contiguous, or the first heads of [T, H + 2 K, D]
    bias_sums_pointer,  # float32 [tiles, H, distances] zeros, or null
    ds_pointer,  # [M, H, keys_stride] gradients of scores, or null
    cu_seqlens_pointer,  # int32 [B + 1]
    tiles_pointer,  # int32 [tiles, 2]: sequence, block of query rows
    cu_queries_pointer,  # int32 [B + 1], read if SUBSET
    query_places_pointer,  # int32 [M] or nothing
    cu_globals_pointer,  # int32 [B + 1] or nothing
    globals_pointer,  # int32 [G] or nothing
    bias_pointer,  # [H, 2 reach + 1] or null
    slopes_pointer,  # float32 [H] or null
    seed_pointer,  # int64 [1] or null
    c2p_pointer,  # [M, H, N] or null
    p2c_pointer,  # [T, H, N] or null
    entries_pointer,  # int32 [2 r + 1] or null
    keys_stride,
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
    HAS_GLOBALS: tl.constexpr,
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
    tile, head, sequence, block = program_tile(tiles_pointer, NUM_HEADS)
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
        distances = (2 * tl.cdiv(reach, BLOCK_KEYS) + 2) * BLOCK_KEYS
        bias_sums_pointer += (tile * NUM_HEADS + head) * distances
    seed = 0
    if HAS_DROPOUT:
        seed = tl.load(seed_pointer)
    WIDTH: tl.constexpr = NUM_HEADS * HEAD_DIM
    query_pointer += first_query * QUERY_STRIDE + head * HEAD_DIM
    key_pointer += start * KEY_STRIDE + (head // GROUP) * HEAD_DIM
    value_pointer += start * VALUE_STRIDE + (head // GROUP) * HEAD_DIM
    grad_output_pointer += first_query * WIDTH + head * HEAD_DIM
    statistics = head.to(tl.int64) * num_queries + first_query + entries
    # A row beyond the last has probabilities of 0.
    lse = tl.load(lse_pointer + statistics, mask=entries < count, other=float("inf"))
    delta = tl.load(delta_pointer + statistics, mask=entries < count, other=0.0)
    queries_at = row_pointer(query_pointer, at, QUERY_STRIDE, False)
    query = load_rows(queries_at, entries, columns, QUERY_STRIDE, count, HEAD_DIM, True, False)
    grads_at = row_pointer(grad_output_pointer, at, WIDTH, False)
    do = load_rows(grads_at, entries, columns, WIDTH, count, HEAD_DIM, True, False)
    dq = tl.zeros([BLOCK_ROWS, BLOCK_DIM], dtype=tl.float32)
    own = (first_query + entries)[:, None]
    exist = (entries < count)[:, None]
    ds_row = (own * NUM_HEADS + head) * keys_stride
    ds_rows = (ds_pointer + ds_row if POSITIONS % 2 else None, exist)
    rows_given = (query, do, lse, delta, ds_rows)
    strides = (KEY_STRIDE, VALUE_STRIDE)
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
    dq = _add_query_gradient(
        dq, rows_given, key_pointer, value_pointer, bias_sums_pointer, globals_pointer, rows,
        entries, columns, first, whole, length, strides, terms, dropping, HEAD_DIM, BLOCK_KEYS,
        WINDOW, CAUSAL, HAS_SLOPES, HAS_BIAS, POSITIONS, HAS_DROPOUT, PRECISION, False, False,
    )  # fmt: skip
    dq = _add_query_gradient(
        dq, rows_given, key_pointer, value_pointer, bias_sums_pointer, globals_pointer, rows,
        entries, columns, whole, last, length, strides, terms, dropping, HEAD_DIM, BLOCK_KEYS,
        WINDOW, CAUSAL, HAS_SLOPES, HAS_BIAS, POSITIONS, HAS_DROPOUT, PRECISION, True, False,
    )  # fmt: skip
    if HAS_GLOBALS:
        listed, num_listed = span(cu_globals_pointer, sequence)
        dq = _add_query_gradient(
            dq, rows_given, key_pointer, value_pointer, bias_sums_pointer, globals_pointer + listed,
            rows, entries, columns, num_listed * 0, num_listed, length, strides, terms, dropping,
            HEAD_DIM, BLOCK_KEYS, WINDOW, CAUSAL, HAS_SLOPES, HAS_BIAS, POSITIONS, HAS_DROPOUT,
            PRECISION, True, True,
        )  # fmt: skip
    GRAD_WIDTH: tl.constexpr = WIDTH + 2 * (WIDTH // GROUP) if JOINED else WIDTH
    places = own * GRAD_WIDTH + head * HEAD_DIM + columns[None, :]
    inside = exist & (columns < HEAD_DIM)[None, :]
    kind = grad_query_pointer.dtype.element_ty
    tl.store(grad_query_pointer + places, (dq * scale).to(kind), mask=inside)
