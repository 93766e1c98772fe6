"""The steps that both backward kernels share: recomputed probabilities, gradient of the scores."""

import triton
import triton.language as tl

from ..common.dropout import keep_scale
from .tile import scores


@triton.jit
def score_gradient(
    query,
    key,
    value,
    do,
    lse,
    delta,
    rows,
    keys,
    length,
    start,
    head,
    bias_pointer,
    seed_pointer,
    reach,
    scale,
    slope,
    dropout,
    NUM_HEADS: tl.constexpr,
    WINDOW: tl.constexpr,
    CAUSAL: tl.constexpr,
    HAS_SLOPES: tl.constexpr,
    HAS_BIAS: tl.constexpr,
    HAS_DROPOUT: tl.constexpr,
    LISTED: tl.constexpr,
    PRECISION: tl.constexpr,
):
    """Return probabilities after dropout and ``ds = p (dp - delta)``, float32 [rows, keys].

    ``p = exp(score - lse)`` is recomputed; ``dp = do V^T``; ``delta = rowsum(do * output)``.
    """
    LOG2E: tl.constexpr = 1.4426950408889634
    score = scores(
        query, key, rows, keys, length, scale, slope, bias_pointer, reach,
        WINDOW, CAUSAL, HAS_SLOPES, HAS_BIAS, LISTED, True, PRECISION,
    )  # fmt: skip
    p = tl.exp2(score - lse[:, None] * LOG2E)
    dp = tl.dot(do, tl.trans(value), input_precision=PRECISION)
    dropped_p = p
    if HAS_DROPOUT:
        keep = keep_scale(tl.load(seed_pointer), (start + rows) * NUM_HEADS + head, keys, dropout)
        dp *= keep
        dropped_p = p * keep
    return dropped_p, p * (dp - delta[:, None])


@triton.jit
def add_by_distance(sums_pointer, ds, rows, at, length, far, BLOCK: tl.constexpr):
    """Add the score gradients [rows, BLOCK] of the keys from ``at`` on to the sums by distance.

    ``sums_pointer``: the program's own [2 far + 2, BLOCK]: the distances from
    ``-(far + 1) * BLOCK`` on; a distance further out goes to the outermost block of its side.

    Each row is rolled until column c holds distance c, or c - BLOCK, from the block of the row, so
    that a column sum adds equal distances. Rows are counted as if keys began at a whole block:
    only distances matter.
    """
    columns = tl.arange(0, BLOCK)
    first = tl.cdiv(at, BLOCK)
    length += first * BLOCK - at
    rows += first * BLOCK - at
    roll = columns[None, :] + (rows % BLOCK)[:, None]
    rolled = tl.gather(ds, roll % BLOCK, 1)
    lowest = tl.min(rows, axis=0) // BLOCK
    highest = tl.max(tl.where(rows < length, rows, 0), axis=0) // BLOCK
    for block in tl.range(lowest, highest + 1):
        own = (rows // BLOCK == block)[:, None]
        for before in tl.static_range(2):
            away = first - block - before
            away = tl.minimum(tl.maximum(away, -far - 1), far) + far + 1
            here = own & (roll // BLOCK == before)
            taken = tl.sum(tl.where(here, rolled, 0.0), axis=0)
            sums = sums_pointer + away * BLOCK + columns
            tl.store(sums, tl.load(sums) + taken)
            # Other threads of the same column read the sum next: the store must be visible.
            tl.debug_barrier()
