"""What the attention kernels share: constants, reading rows, ranges of keys, scores."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import triton
import triton.language as tl

if TYPE_CHECKING:
    from .differentiable import Call


def constants(call: Call) -> dict[str, Any]:
    """Return what all kernels of a call are compiled for, besides the launch shape."""
    _, num_heads, head_dim = call.query_THD.shape
    return {
        "NUM_HEADS": num_heads,
        "GROUP": call.group,
        "HEAD_DIM": head_dim,
        "BLOCK_DIM": max(16, triton.next_power_of_2(head_dim)),
        "WINDOW": -1 if call.window is None else call.window,
        "CAUSAL": call.causal,
        "HAS_SLOPES": call.slopes_H is not None,
        "HAS_DROPOUT": call.seed is not None,
        "PRECISION": "ieee",
    }


@triton.jit
def load_rows(pointer, rows, columns, stride, length, HEAD_DIM: tl.constexpr, MASKED: tl.constexpr):
    """Load [rows, columns] of one sequence and head, zero outside; unmasked where told so."""
    places = rows.to(tl.int64)[:, None] * stride + columns[None, :]
    if MASKED:
        inside = (rows < length)[:, None] & (columns < HEAD_DIM)[None, :]
        return tl.load(pointer + places, mask=inside, other=0.0)
    if columns.shape[0] != HEAD_DIM:
        return tl.load(pointer + places, mask=(columns < HEAD_DIM)[None, :], other=0.0)
    return tl.load(pointer + places)


@triton.jit
def key_range(
    block,
    length,
    BLOCK_ROWS: tl.constexpr,
    BLOCK_KEYS: tl.constexpr,
    WINDOW: tl.constexpr,
    CAUSAL: tl.constexpr,
):
    """Return (first, last, whole): keys a block of rows can see, and where masks must begin.

    Keys first .. whole are seen by every row and exist; whole .. last need a mask. With a window
    or a causal border all blocks take the mask: they are few, or half of them need it.
    """
    first = 0
    last = length
    if WINDOW >= 0:
        first = tl.maximum(0, block * BLOCK_ROWS - WINDOW) // BLOCK_KEYS * BLOCK_KEYS
        last = tl.minimum(last, (block + 1) * BLOCK_ROWS + WINDOW)
    if CAUSAL:
        last = tl.minimum(last, (block + 1) * BLOCK_ROWS)
    whole = first
    if WINDOW < 0 and not CAUSAL:
        whole = length // BLOCK_KEYS * BLOCK_KEYS
    return first, last, whole


@triton.jit
def row_range(
    block,
    length,
    BLOCK_ROWS: tl.constexpr,
    BLOCK_KEYS: tl.constexpr,
    WINDOW: tl.constexpr,
    CAUSAL: tl.constexpr,
):
    """Return (first, last): the query rows that can see a block of keys."""
    first = 0
    last = length
    if WINDOW >= 0:
        first = tl.maximum(0, block * BLOCK_KEYS - WINDOW)
        last = tl.minimum(last, (block + 1) * BLOCK_KEYS + WINDOW)
    if CAUSAL:
        first = tl.maximum(first, block * BLOCK_KEYS)
    return first // BLOCK_ROWS * BLOCK_ROWS, last


@triton.jit
def scores(
    query,
    key,
    rows,
    keys,
    length,
    scale,
    slope,
    WINDOW: tl.constexpr,
    CAUSAL: tl.constexpr,
    HAS_SLOPES: tl.constexpr,
    MASKED: tl.constexpr,
    PRECISION: tl.constexpr,
):
    """Return scaled scores [rows, keys], -inf where a row does not see a key."""
    score = tl.dot(query, tl.trans(key), input_precision=PRECISION) * scale
    distance = keys[None, :] - rows[:, None]
    if HAS_SLOPES:
        score -= slope * tl.abs(distance).to(tl.float32)
    if MASKED:
        seen = (keys < length)[None, :] & (rows < length)[:, None]
        if WINDOW >= 0:
            seen &= tl.abs(distance) <= WINDOW
        if CAUSAL:
            seen &= distance <= 0
        score = tl.where(seen, score, float("-inf"))
    return score
