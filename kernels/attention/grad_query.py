"""The attention gradients of the query and of the relative bias.

A program owns a block of queries and loops over keys. Names are those of FlashAttention-2: ``do``
is the gradient of the output, ``ds`` of the scores, ``dq`` of the query.
"""

import triton
import triton.language as tl

from .score_gradient import add_by_distance, score_gradient
from .tile import key_range, load_rows, places_of, span


@triton.jit
def _add_query_gradient(
    dq,
    query,
    do,
    lse,
    delta,
    key_pointer,
    value_pointer,
    bias_pointer,
    bias_sums_pointer,
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
    LISTED: tl.constexpr,
):
    """Add the contribution of the keys low .. high to ``dq``, and to the bias' gradient."""
    for at in tl.range(low, high, BLOCK_KEYS):
        entries = at + tl.arange(0, BLOCK_KEYS)
        keys = places_of(list_pointer, 0, entries, high, length, LISTED)
        key = load_rows(key_pointer, keys, columns, key_stride, length, HEAD_DIM, True)
        value = load_rows(value_pointer, keys, columns, value_stride, length, HEAD_DIM, True)
        _p, ds = score_gradient(
            query, key, value, do, lse, delta, rows, keys, length, start, head, bias_pointer,
            seed_pointer, reach, scale, slope, dropout, NUM_HEADS, WINDOW, CAUSAL, HAS_SLOPES,
            HAS_BIAS, HAS_DROPOUT, LISTED, PRECISION,
        )  # fmt: skip
        if HAS_BIAS:
            far = tl.cdiv(reach, BLOCK_KEYS)
            add_by_distance(bias_sums_pointer, ds, rows, at, length, far, BLOCK_KEYS)
        dq = tl.dot(ds.to(key.dtype), key, dq, input_precision=PRECISION)
    return dq


@triton.jit
def _attention_grad_query_kernel(
    query_pointer,  # [M, H, D]
    key_pointer,  # [T, K, D]
    value_pointer,  # [T, K, D]
    grad_output_pointer,  # [M, H, D] contiguous
    lse_pointer,  # float32 [H, M]
    delta_pointer,  # float32 [H, M]
    grad_query_pointer,  # [M, H, D] contiguous
    bias_sums_pointer,  # float32 [tiles, H, distances] zeros, or null
    cu_seqlens_pointer,  # int32 [B + 1]
    tiles_pointer,  # int32 [tiles, 2]: sequence, block of query rows
    cu_queries_pointer,  # int32 [B + 1] or nothing
    query_places_pointer,  # int32 [M] or nothing
    cu_globals_pointer,  # int32 [B + 1] or nothing
    globals_pointer,  # int32 [G] or nothing
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
        distances = (2 * tl.cdiv(reach, BLOCK_KEYS) + 2) * BLOCK_KEYS
        bias_sums_pointer += (tile * NUM_HEADS + head) * distances
    WIDTH: tl.constexpr = NUM_HEADS * HEAD_DIM
    query_pointer += first_query * query_stride + head * HEAD_DIM
    key_pointer += start * key_stride + (head // GROUP) * HEAD_DIM
    value_pointer += start * value_stride + (head // GROUP) * HEAD_DIM
    grad_output_pointer += first_query * WIDTH + head * HEAD_DIM
    statistics = head * num_queries.to(tl.int64) + first_query + entries
    lse = tl.load(lse_pointer + statistics, mask=entries < count, other=0.0)
    delta = tl.load(delta_pointer + statistics, mask=entries < count, other=0.0)
    query = load_rows(query_pointer, entries, columns, query_stride, count, HEAD_DIM, True)
    do = load_rows(grad_output_pointer, entries, columns, WIDTH, count, HEAD_DIM, True)
    dq = tl.zeros([BLOCK_ROWS, BLOCK_DIM], dtype=tl.float32)
    first, last, _whole = key_range(rows, length, BLOCK_KEYS, WINDOW, CAUSAL)
    dq = _add_query_gradient(
        dq, query, do, lse, delta, key_pointer, value_pointer, bias_pointer,
        bias_sums_pointer, seed_pointer, globals_pointer, rows, columns, first, last, length, start,
        head, key_stride, value_stride, reach, scale, slope, dropout, NUM_HEADS, HEAD_DIM,
        BLOCK_KEYS, WINDOW, CAUSAL, HAS_SLOPES, HAS_BIAS, HAS_DROPOUT, PRECISION, False,
    )  # fmt: skip
    if HAS_GLOBALS:
        listed, num_listed = span(cu_globals_pointer, sequence)
        dq = _add_query_gradient(
            dq, query, do, lse, delta, key_pointer, value_pointer, bias_pointer,
            bias_sums_pointer, seed_pointer, globals_pointer + listed, rows, columns, 0, num_listed,
            length, start, head, key_stride, value_stride, reach, scale, slope, dropout, NUM_HEADS,
            HEAD_DIM, BLOCK_KEYS, WINDOW, CAUSAL, HAS_SLOPES, HAS_BIAS, HAS_DROPOUT, PRECISION,
            True,
        )  # fmt: skip
    places = (first_query + entries)[:, None] * WIDTH + head * HEAD_DIM + columns[None, :]
    inside = (entries < count)[:, None] & (columns < HEAD_DIM)[None, :]
    kind = grad_query_pointer.dtype.element_ty
    tl.store(grad_query_pointer + places, (dq * scale).to(kind), mask=inside)
