"""The attention gradients of key and value: a program owns a block of keys, loops over queries."""

import triton
import triton.language as tl

from .score_gradient import score_gradient
from .tile import load_rows, places_of, row_range, span


@triton.jit
def _attention_grad_key_value_kernel(
    query_pointer,  # [M, H, D]
    key_pointer,  # [T, K, D]
    value_pointer,  # [T, K, D]
    grad_output_pointer,  # [M, H, D] contiguous
    lse_pointer,  # float32 [H, M]
    delta_pointer,  # float32 [H, M]
    grad_key_pointer,  # [T, K, D] contiguous
    grad_value_pointer,  # [T, K, D] contiguous
    cu_seqlens_pointer,  # int32 [B + 1]
    tiles_pointer,  # int32 [tiles, 2]: sequence, block of keys
    cu_queries_pointer,  # int32 [B + 1] or nothing
    query_places_pointer,  # int32 [M] or nothing
    cu_listed_pointer,  # int32 [B + 1] or nothing
    listed_pointer,  # int32 [G] places of the program's keys, or empty: all
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
    LISTED: tl.constexpr,
    HAS_SLOPES: tl.constexpr,
    HAS_BIAS: tl.constexpr,
    HAS_DROPOUT: tl.constexpr,
    PRECISION: tl.constexpr,
):
    tile = tl.program_id(0).to(tl.int64)
    key_head = tl.program_id(1)
    sequence = tl.load(tiles_pointer + 2 * tile)
    block = tl.load(tiles_pointer + 2 * tile + 1)
    start, length = span(cu_seqlens_pointer, sequence)
    first_query, count = start, length
    if SUBSET:
        first_query, count = span(cu_queries_pointer, sequence)
    first_listed, num_listed = start, length
    if LISTED:
        first_listed, num_listed = span(cu_listed_pointer, sequence)
    keys = block * BLOCK_KEYS + tl.arange(0, BLOCK_KEYS)
    keys = places_of(listed_pointer, first_listed, keys, num_listed, length, LISTED)
    columns = tl.arange(0, BLOCK_DIM)
    WIDTH: tl.constexpr = NUM_HEADS * HEAD_DIM
    KEY_WIDTH: tl.constexpr = NUM_HEADS // GROUP * HEAD_DIM
    key_pointer += start * key_stride + key_head * HEAD_DIM
    value_pointer += start * value_stride + key_head * HEAD_DIM
    key = load_rows(key_pointer, keys, columns, key_stride, length, HEAD_DIM, True)
    value = load_rows(value_pointer, keys, columns, value_stride, length, HEAD_DIM, True)
    dk = tl.zeros([BLOCK_KEYS, BLOCK_DIM], dtype=tl.float32)
    dv = tl.zeros([BLOCK_KEYS, BLOCK_DIM], dtype=tl.float32)
    first, last = row_range(block, length, count, BLOCK_KEYS, WINDOW, CAUSAL, SUBSET or LISTED)
    for member in tl.range(0, GROUP):
        head = key_head * GROUP + member
        slope = 0.0
        if HAS_SLOPES:
            slope = tl.load(slopes_pointer + head)
        bias = bias_pointer
        if HAS_BIAS:
            bias = bias_pointer + head * (2 * reach + 1)
        queries = query_pointer + first_query * query_stride + head * HEAD_DIM
        output_grads = grad_output_pointer + first_query * WIDTH + head * HEAD_DIM
        for at in tl.range(first, last, BLOCK_ROWS):
            entries = at + tl.arange(0, BLOCK_ROWS)
            rows = places_of(query_places_pointer, first_query, entries, count, length, SUBSET)
            statistics = head * num_queries.to(tl.int64) + first_query + entries
            lse = tl.load(lse_pointer + statistics, mask=entries < count, other=0.0)
            delta = tl.load(delta_pointer + statistics, mask=entries < count, other=0.0)
            query = load_rows(queries, entries, columns, query_stride, count, HEAD_DIM, True)
            do = load_rows(output_grads, entries, columns, WIDTH, count, HEAD_DIM, True)
            p, ds = score_gradient(
                query, key, value, do, lse, delta, rows, keys, length, start, head, bias,
                seed_pointer, reach, scale, slope, dropout, NUM_HEADS, WINDOW, CAUSAL, HAS_SLOPES,
                HAS_BIAS, HAS_DROPOUT, False, PRECISION,
            )  # fmt: skip
            kind = query.dtype
            dv = tl.dot(tl.trans(p.to(kind)), do, dv, input_precision=PRECISION)
            dk = tl.dot(tl.trans(ds.to(kind)), query, dk, input_precision=PRECISION)
    places = (start + keys)[:, None] * KEY_WIDTH + key_head * HEAD_DIM + columns[None, :]
    inside = (keys < length)[:, None] & (columns < HEAD_DIM)[None, :]
    kind = grad_key_pointer.dtype.element_ty
    tl.store(grad_key_pointer + places, (dk * scale).to(kind), mask=inside)
    tl.store(grad_value_pointer + places, dv.to(kind), mask=inside)
