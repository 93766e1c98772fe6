"""The steps that the attention kernels share: loading rows, ranges of rows and keys, scores."""

import triton
import triton.language as tl


@triton.jit
def load_rows(pointer, rows, columns, stride, length, HEAD_DIM: tl.constexpr, MASKED: tl.constexpr):
    """Load [rows, columns] of one sequence and head, zero outside; rows are masked if MASKED."""
    places = rows.to(tl.int64)[:, None] * stride + columns[None, :]
    if MASKED:
        inside = (rows < length)[:, None] & (columns < HEAD_DIM)[None, :]
        return tl.load(pointer + places, mask=inside, other=0.0)
    if columns.shape[0] != HEAD_DIM:
        return tl.load(pointer + places, mask=(columns < HEAD_DIM)[None, :], other=0.0)
    return tl.load(pointer + places)


@triton.jit
def span(cu_pointer, sequence):
    """Return the first row of a sequence, and its number of rows."""
    start = tl.load(cu_pointer + sequence).to(tl.int64)
    stop = tl.load(cu_pointer + sequence + 1).to(tl.int64)
    return start, (stop - start).to(tl.int32)


@triton.jit
def places_of(list_pointer, start, entries, count, length, LISTED: tl.constexpr):
    """Return the places of entries within their sequence; ``length`` for one beyond ``count``.

    Entry i is place i or, LISTED, the i-th place of the list.
    """
    if LISTED:
        return tl.load(list_pointer + start + entries, mask=entries < count, other=length)
    return entries


@triton.jit
def key_range(rows, length, BLOCK_KEYS: tl.constexpr, WINDOW: tl.constexpr, CAUSAL: tl.constexpr):
    """Return (first, last, whole): the keys that a block of rows sees, and where masks begin.

    Every row sees the keys first .. whole; whole .. last need a mask. With a window or a causal
    border all blocks are masked: they are few, or half of them need it.
    """
    first = 0
    last = length
    whole = length // BLOCK_KEYS * BLOCK_KEYS
    if WINDOW >= 0 or CAUSAL:
        highest = tl.max(tl.where(rows < length, rows, 0), axis=0)
        if WINDOW >= 0:
            lowest = tl.min(rows, axis=0)
            first = tl.maximum(0, lowest - WINDOW)
            last = tl.minimum(last, highest + WINDOW + 1)
        if CAUSAL:
            last = tl.minimum(last, highest + 1)
        whole = first
    return first, last, whole


@triton.jit
def row_range(
    block,
    length,
    count,
    BLOCK_KEYS: tl.constexpr,
    WINDOW: tl.constexpr,
    CAUSAL: tl.constexpr,
    LISTED: tl.constexpr,
):
    """Return (first, last): the query rows that see a block of keys; LISTED: all."""
    if LISTED:
        return 0, count
    first = 0
    last = length
    if WINDOW >= 0:
        first = tl.maximum(0, block * BLOCK_KEYS - WINDOW)
        last = tl.minimum(last, (block + 1) * BLOCK_KEYS + WINDOW)
    if CAUSAL:
        first = tl.maximum(first, block * BLOCK_KEYS)
    return first, last


@triton.jit
def scores(
    query,
    key,
    rows,
    keys,
    length,
    scale,
    slope,
    bias_pointer,
    reach,
    WINDOW: tl.constexpr,
    CAUSAL: tl.constexpr,
    HAS_SLOPES: tl.constexpr,
    HAS_BIAS: tl.constexpr,
    LISTED: tl.constexpr,
    MASKED: tl.constexpr,
    PRECISION: tl.constexpr,
):
    """Return scaled scores [rows, keys] times log2 e, -inf where a row does not see a key.

    LISTED keys are masked within the window, where the loop over the window computes them.
    """
    LOG2E: tl.constexpr = 1.4426950408889634
    score = tl.dot(query, tl.trans(key), input_precision=PRECISION) * (scale * LOG2E)
    distance = keys[None, :] - rows[:, None]
    if HAS_SLOPES:
        score -= slope * LOG2E * tl.abs(distance).to(tl.float32)
    if HAS_BIAS:
        entry = tl.minimum(tl.maximum(distance, -reach), reach) + reach
        score += tl.load(bias_pointer + entry).to(tl.float32) * LOG2E
    if MASKED:
        seen = (keys < length)[None, :] & (rows < length)[:, None]
        if WINDOW >= 0:
            if LISTED:
                seen &= tl.abs(distance) > WINDOW
            else:
                seen &= tl.abs(distance) <= WINDOW
        if CAUSAL:
            seen &= distance <= 0
        score = tl.where(seen, score, float("-inf"))
    return score
