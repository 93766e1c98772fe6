"""What the two halves of backward share: weights again, and the gradient of the scores."""

import triton
import triton.language as tl

from ..common.dropout import keep_scale
from .tile import scores


@triton.jit
def score_gradient(
    query,
    key,
    value,
    grad,
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
    """Return the kept probabilities and the gradient of the scores, float32 [rows, keys]."""
    LOG2E: tl.constexpr = 1.4426950408889634
    score = scores(
        query, key, rows, keys, length, scale, slope, bias_pointer, reach,
        WINDOW, CAUSAL, HAS_SLOPES, HAS_BIAS, LISTED, True, PRECISION,
    )  # fmt: skip
    weight = tl.exp2(score - lse[:, None] * LOG2E)
    grad_weight = tl.dot(grad, tl.trans(value), input_precision=PRECISION)
    kept = weight
    if HAS_DROPOUT:
        scaled = keep_scale(tl.load(seed_pointer), (start + rows) * NUM_HEADS + head, keys, dropout)
        grad_weight *= scaled
        kept = weight * scaled
    return kept, weight * (grad_weight - delta[:, None])


@triton.jit
def add_by_distance(sums_pointer, grad_score, rows, at, length, far, BLOCK: tl.constexpr):
    """Add the gradients [rows, BLOCK] of keys from ``at`` on to their distances' sums.

    ``sums_pointer``: the program's own [2 far + 2, BLOCK], distances in blocks of them, from
    ``-(far + 1) * BLOCK`` on; what lies further out goes to the outermost block of its side.

    A row's gradients are turned until column c holds distance c, or c - BLOCK, off its own block.
    Rows are counted as if keys began at a whole block: only distances matter.
    """
    columns = tl.arange(0, BLOCK)
    first = tl.cdiv(at, BLOCK)
    length += first * BLOCK - at
    rows += first * BLOCK - at
    turn = columns[None, :] + (rows % BLOCK)[:, None]
    turned = tl.gather(grad_score, turn % BLOCK, 1)
    lowest = tl.min(rows, axis=0) // BLOCK
    highest = tl.max(tl.where(rows < length, rows, 0), axis=0) // BLOCK
    for block in tl.range(lowest, highest + 1):
        own = (rows // BLOCK == block)[:, None]
        for before in tl.static_range(2):
            away = first - block - before
            away = tl.minimum(tl.maximum(away, -far - 1), far) + far + 1
            here = own & (turn // BLOCK == before)
            taken = tl.sum(tl.where(here, turned, 0.0), axis=0)
            sums = sums_pointer + away * BLOCK + columns
            tl.store(sums, tl.load(sums) + taken)
            # Threads that hold the same column read it again: they must see what was stored.
            tl.debug_barrier()
