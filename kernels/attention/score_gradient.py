"""Steps that attention's gradient kernels share: probabilities, computed again, and ``ds``.

``ds`` is the gradient of the scores.
"""

import triton
import triton.language as tl

from ..common.dropout import keep_weights
from .tile import add_terms


@triton.jit
def score_gradient(
    dots,
    dp,
    lse,
    delta,
    rows,
    entries,
    keys,
    length,
    terms,
    dropping,
    WINDOW: tl.constexpr,
    CAUSAL: tl.constexpr,
    HAS_SLOPES: tl.constexpr,
    HAS_BIAS: tl.constexpr,
    POSITIONS: tl.constexpr,
    HAS_DROPOUT: tl.constexpr,
    LISTED: tl.constexpr,
    MASKED: tl.constexpr,
):
    """Return probabilities ``p``, 0 where dropped, and ``ds = p (dp - delta)``, float32.

    Both have the layout of ``dots``. ``p = exp2(score - lse)`` is recomputed, and not scaled up for
    dropout. ``dots``: products of queries and keys; ``dp``: products of the output's gradient and
    values. ``dropping``: seed, stream, dropout, and places of rows and keys for ``keep_weights``.
    """
    score, factor = add_terms(
        dots, rows, entries, keys, length, terms, WINDOW, CAUSAL, HAS_SLOPES, HAS_BIAS, POSITIONS,
        LISTED, MASKED,
    )  # fmt: skip
    p = tl.exp2(tl.fma(score, factor, -lse))
    if HAS_DROPOUT:
        seed, stream, dropout, row_places, key_places = dropping
        kept = keep_weights(seed, stream, row_places, key_places, dropout)
        dp = tl.where(kept, dp, 0.0)
        return tl.where(kept, p, 0.0), p * tl.fma(dp, 1.0 / (1.0 - dropout), -delta)
    return p, p * (dp - delta)


@triton.jit
def store_by_distance(
    sums_pointer,
    ds,
    keys,
    rows,
    listed,
    far,
    length,
    count,
    reach,
    sums_stride,
    BEYOND: tl.constexpr,
):
    """Store the score gradients [keys, rows] of global keys beyond the window, by distance.

    ``listed``: the keys' indices in the list of global keys.
    ``sums_pointer``: the head's own [2 reach + 1] of the first listed key; ``sums_stride``: from
    one key to the next. A key meets each distance once, so nothing is added, except beyond the
    reach: those are added to ``far`` = (below, above), [keys], which is returned.
    """
    below, above = far
    distance = keys[:, None] - rows[None, :]
    taken = (tl.abs(distance) > BEYOND) & (keys < length)[:, None] & (rows < length)[None, :]
    places = listed.to(tl.int64)[:, None] * sums_stride + distance + reach
    here = taken & (tl.abs(distance) < reach) & (listed < count)[:, None]
    tl.store(sums_pointer + places, ds, mask=here)
    below += tl.sum(tl.where(taken & (distance <= -reach), ds, 0.0), axis=1)
    above += tl.sum(tl.where(taken & (distance >= reach), ds, 0.0), axis=1)
    return below, above


@triton.jit
def add_by_distance(sums_pointer, ds, rows, exist, at, far, BLOCK: tl.constexpr):
    """Add the score gradients [rows, BLOCK] of the keys from ``at`` on to the sums by distance.

    ``sums_pointer``: the program's own [2 far + 2, BLOCK]: the distances from
    ``-(far + 1) * BLOCK`` on; a distance further out goes to the outermost block of its side.

    Each row is rolled until column c holds distance c, or c - BLOCK, from the block of the row, so
    that a column sum adds equal distances. Rows are counted as if keys began at a whole block:
    only distances matter.
    """
    columns = tl.arange(0, BLOCK)
    first = tl.cdiv(at, BLOCK)
    rows += first * BLOCK - at
    roll = columns[None, :] + (rows % BLOCK)[:, None]
    rolled = tl.gather(ds, roll % BLOCK, 1)
    lowest = tl.min(rows, axis=0) // BLOCK
    highest = tl.max(tl.where(exist, rows[:, None], 0)) // BLOCK
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
