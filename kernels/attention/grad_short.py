"""The attention gradients of sequences that fit into one block: one kernel instead of three.

How it works: a program owns a whole sequence and a head of keys. It loads query, key, value, output
and the output's gradient once, where the kernels for long sequences load them twice and the sums
``delta`` through memory. Scores are computed once [rows, keys], for the query's gradient, and once
[keys, rows], for those of key and value: each product then has the last one's result as its left
operand, in registers (see ``grad_key_value.py``).
"""

import triton
import triton.language as tl

from .score_gradient import score_gradient
from .tile import load_rows, program_tile, span


@triton.jit
def _attention_grad_short_kernel(
    query_pointer,  # [T, H, D]
    key_pointer,  # [T, K, D]
    value_pointer,  # [T, K, D]
    grad_output_pointer,  # [T, H, D] contiguous
    output_pointer,  # [T, H, D] contiguous
    lse_pointer,  # float32 [H, T], of powers of two
    grad_query_pointer,  # [T, H, D] contiguous, or the first heads of [T, H + 2 K, D]
    grad_key_pointer,  # [T, K, D] likewise
    grad_value_pointer,  # [T, K, D] likewise
    cu_seqlens_pointer,  # int32 [B + 1]
    tiles_pointer,  # int32 [B, 2]: sequence, 0
    slopes_pointer,  # float32 [H] or null
    seed_pointer,  # int64 [1] or null
    num_queries,
    scale,
    dropout,
    QUERY_STRIDE: tl.constexpr,
    KEY_STRIDE: tl.constexpr,
    VALUE_STRIDE: tl.constexpr,
    NUM_HEADS: tl.constexpr,
    GROUP: tl.constexpr,
    HEAD_DIM: tl.constexpr,
    BLOCK_DIM: tl.constexpr,
    BLOCK: tl.constexpr,  # rows, at least the longest sequence
    WINDOW: tl.constexpr,
    CAUSAL: tl.constexpr,
    HAS_SLOPES: tl.constexpr,
    HAS_DROPOUT: tl.constexpr,
    JOINED: tl.constexpr,
    PRECISION: tl.constexpr,
):
    LOG2E: tl.constexpr = 1.4426950408889634
    KEY_HEADS: tl.constexpr = NUM_HEADS // GROUP
    WIDTH: tl.constexpr = NUM_HEADS * HEAD_DIM
    KEY_WIDTH: tl.constexpr = KEY_HEADS * HEAD_DIM
    GRAD_WIDTH: tl.constexpr = WIDTH + 2 * KEY_WIDTH if JOINED else WIDTH
    GRAD_KEY_WIDTH: tl.constexpr = GRAD_WIDTH if JOINED else KEY_WIDTH
    _tile, key_head, sequence, _block = program_tile(tiles_pointer, KEY_HEADS)
    start, length = span(cu_seqlens_pointer, sequence)
    rows = tl.arange(0, BLOCK)
    columns = tl.arange(0, BLOCK_DIM)
    key_pointer += start * KEY_STRIDE + key_head * HEAD_DIM
    value_pointer += start * VALUE_STRIDE + key_head * HEAD_DIM
    key = load_rows(key_pointer, rows, columns, KEY_STRIDE, length, HEAD_DIM, True, False)
    value = load_rows(value_pointer, rows, columns, VALUE_STRIDE, length, HEAD_DIM, True, False)
    seed = 0
    if HAS_DROPOUT:
        seed = tl.load(seed_pointer)
    dk = tl.zeros([BLOCK, BLOCK_DIM], dtype=tl.float32)
    dv = tl.zeros([BLOCK, BLOCK_DIM], dtype=tl.float32)
    inside = (rows < length)[:, None] & (columns < HEAD_DIM)[None, :]
    base = tl.full([], 0, tl.int32)
    across, down = (base, rows[None, :]), (base, rows[:, None])
    for member in tl.range(0, GROUP):
        head = key_head * GROUP + member
        slope = 0.0
        if HAS_SLOPES:
            slope = tl.load(slopes_pointer + head) * LOG2E
        terms = (scale * LOG2E, slope, None, 0, None)
        stream = sequence * NUM_HEADS + head
        queries = query_pointer + start * QUERY_STRIDE + head * HEAD_DIM
        first = start * WIDTH + head * HEAD_DIM
        query = load_rows(queries, rows, columns, QUERY_STRIDE, length, HEAD_DIM, True, False)
        do = load_rows(
            grad_output_pointer + first, rows, columns, WIDTH, length, HEAD_DIM, True, False
        )
        output = load_rows(
            output_pointer + first, rows, columns, WIDTH, length, HEAD_DIM, True, False
        )
        delta = tl.sum(output.to(tl.float32) * do.to(tl.float32), axis=1)
        statistics = head.to(tl.int64) * num_queries + start + rows
        # A row beyond the last has probabilities of 0.
        lse = tl.load(lse_pointer + statistics, mask=rows < length, other=float("inf"))
        dots = tl.dot(query, tl.trans(key), input_precision=PRECISION)
        dp = tl.dot(do, tl.trans(value), input_precision=PRECISION)
        _p, ds = score_gradient(
            dots, dp, lse[:, None], delta[:, None], rows[:, None], rows[:, None], rows[None, :],
            length, terms, (seed, stream, dropout, down, across), WINDOW, CAUSAL, HAS_SLOPES, False,
            0, HAS_DROPOUT, False, True,
        )  # fmt: skip
        dq = tl.dot(ds.to(key.dtype), key, input_precision=PRECISION)
        own = start + rows.to(tl.int64)[:, None]
        places = own * GRAD_WIDTH + head * HEAD_DIM + columns[None, :]
        kind = grad_query_pointer.dtype.element_ty
        tl.store(grad_query_pointer + places, (dq * scale).to(kind), mask=inside)
        dots = tl.dot(key, tl.trans(query), input_precision=PRECISION)
        dp = tl.dot(value, tl.trans(do), input_precision=PRECISION)
        p, ds = score_gradient(
            dots, dp, lse[None, :], delta[None, :], rows[None, :], rows[None, :], rows[:, None],
            length, terms, (seed, stream, dropout, across, down), WINDOW, CAUSAL, HAS_SLOPES, False,
            0, HAS_DROPOUT, False, WINDOW >= 0 or CAUSAL,
        )  # fmt: skip
        dv = tl.dot(p.to(do.dtype), do, dv, input_precision=PRECISION)
        dk = tl.dot(ds.to(query.dtype), query, dk, input_precision=PRECISION)
    if HAS_DROPOUT:
        dv *= 1.0 / (1.0 - dropout)
    own = start + rows.to(tl.int64)[:, None]
    places = own * GRAD_KEY_WIDTH + key_head * HEAD_DIM + columns[None, :]
    kind = grad_key_pointer.dtype.element_ty
    tl.store(grad_key_pointer + places, (dk * scale).to(kind), mask=inside)
    tl.store(grad_value_pointer + places, dv.to(kind), mask=inside)
