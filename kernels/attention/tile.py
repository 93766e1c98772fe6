"""The steps that the attention kernels share: loading rows, ranges of rows and keys, scores.

Scores have the layout [rows, keys] where a program owns queries and [keys, rows] where it owns
keys: functions take rows and keys with an axis added, and broadcast.
"""

import triton
import triton.language as tl


@triton.jit
def program_tile(tiles_pointer, NUM_HEADS: tl.constexpr):
    """Return this program's tile, head, sequence, and block within the sequence: their indices.

    Heads vary fastest: tiles of the longest sequences start first, and neighbours read neighbouring
    memory.
    """
    program = tl.program_id(0)
    tile = (program // NUM_HEADS).to(tl.int64)
    sequence = tl.load(tiles_pointer + 2 * tile)
    block = tl.load(tiles_pointer + 2 * tile + 1)
    return tile, program % NUM_HEADS, sequence, block


@triton.jit
def loop_range(low, high, WIDE: tl.constexpr):
    """Return the bounds of a loop over blocks; WIDE: in 64 bits, as the loop's index is then used.

    LLVM widens an index that is extended or multiplied to 64 bits (Philox multiplies so). It then
    converts the bound on the edge around the loop, sets the accumulators to zero there, and ptxas,
    which finds registers of a wgmma written between its start and its wait, serialises every wgmma
    of the kernel (its message C7515).
    """
    if WIDE:
        low = low.to(tl.int64)
        high = high.to(tl.int64)
    return low, high


@triton.jit
def load_rows(
    pointer,
    rows,
    columns,
    stride,
    length,
    HEAD_DIM: tl.constexpr,
    MASKED: tl.constexpr,
    LISTED: tl.constexpr,
):
    """Load [rows, columns] of one sequence and head; MASKED: zeros for rows beyond ``length``.

    ``pointer``: of the first row, if rows follow each other; if LISTED, of the sequence's row 0.
    """
    if LISTED:
        places = rows.to(tl.int64)[:, None] * stride + columns[None, :]
    else:
        # Offsets within a block are 32 bits wide and the same in every iteration of a loop.
        places = tl.arange(0, rows.shape[0])[:, None] * stride + columns[None, :]
    if MASKED:
        inside = (rows < length)[:, None] & (columns < HEAD_DIM)[None, :]
        return tl.load(pointer + places, mask=inside, other=0.0)
    if columns.shape[0] != HEAD_DIM:
        return tl.load(pointer + places, mask=(columns < HEAD_DIM)[None, :], other=0.0)
    return tl.load(pointer + places)


@triton.jit
def row_pointer(pointer, row, stride, LISTED: tl.constexpr):
    """Return the pointer from which ``load_rows`` loads a block that begins at ``row``.

    If LISTED it is ``pointer`` itself. Loops advance it by whole blocks: ``row * stride`` would
    widen their index, see ``loop_range``.
    """
    return pointer if LISTED else pointer + row.to(tl.int64) * stride


@triton.jit
def span(cu_pointer, sequence):
    """Return the first row of a sequence, and its number of rows."""
    start = tl.load(cu_pointer + sequence).to(tl.int64)
    stop = tl.load(cu_pointer + sequence + 1).to(tl.int64)
    return start, (stop - start).to(tl.int32)


@triton.jit
def places_of(list_pointer, start, entries, count, length, LISTED: tl.constexpr):
    """Return the positions in their sequence of the queries or keys with the indices ``entries``.

    Index i is position i or, if LISTED, the i-th position of the list. An index from ``count`` on
    is beyond the list and gets ``length``.
    """
    if LISTED:
        return tl.load(list_pointer + start + entries, mask=entries < count, other=length)
    return entries


@triton.jit
def key_range(
    rows, exist, length, BLOCK_KEYS: tl.constexpr, WINDOW: tl.constexpr, CAUSAL: tl.constexpr
):
    """Return (first, last, whole): the keys that a block of query rows sees, ends excluded.

    Every row sees the keys from first to whole; those from whole to last need a mask. With a window
    or a causal border all blocks are masked: they are few, or half of them need it.
    """
    first = tl.full([], 0, tl.int32)
    last = length
    whole = length // BLOCK_KEYS * BLOCK_KEYS
    if WINDOW >= 0 or CAUSAL:
        # A row that exists may lie beyond the last key: rows that attend and are not seen.
        highest = tl.max(tl.where(exist, rows, 0), axis=0)
        if WINDOW >= 0:
            lowest = tl.min(rows, axis=0)
            first = _align(tl.maximum(0, lowest - WINDOW))
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
    BLOCK_ROWS: tl.constexpr,
    BLOCK_KEYS: tl.constexpr,
    WINDOW: tl.constexpr,
    CAUSAL: tl.constexpr,
    LISTED: tl.constexpr,
):
    """Return (first, last, whole): the query rows that see a block of keys, ends excluded.

    From first to whole, every block of rows is full. LISTED: all rows see the keys.
    """
    first = tl.full([], 0, tl.int32)
    last = length
    if LISTED:
        last = count
    else:
        if WINDOW >= 0:
            first = _align(tl.maximum(0, block * BLOCK_KEYS - WINDOW))
            last = tl.minimum(last, (block + 1) * BLOCK_KEYS + WINDOW)
        if CAUSAL:
            first = tl.maximum(first, block * BLOCK_KEYS)
    whole = first + tl.maximum(last - first, 0) // BLOCK_ROWS * BLOCK_ROWS
    return first, last, whole


@triton.jit
def _align(place):
    """Round a position down to the first of the 16 that share a random number."""
    return place // 16 * 16


@triton.jit
def shared_places(places, at, BLOCK: tl.constexpr, LISTED: tl.constexpr):
    """Return (base, offsets) of a block's positions, the form that ``keep_weights`` takes."""
    base = at
    offsets = tl.arange(0, BLOCK)
    if LISTED:
        base = at * 0
        offsets = places
    return base, offsets


@triton.jit
def position_products(positions, rows, entries, keys, length, POSITIONS: tl.constexpr):
    """Return what disentangled attention adds to the products of queries and keys.

    ``positions``: pointers of the first query's products c2p and the first key's products p2c, the
    stride of both, how many position vectors there are, the vector's number of each distance, and
    the farthest distance. ``POSITIONS``: 1 with c2p, 2 with p2c, 3 with both.
    """
    c2p_pointer, p2c_pointer, stride, count, numbers_pointer, reach = positions
    distance = tl.minimum(tl.maximum(keys - rows, -reach), reach)
    number = tl.load(numbers_pointer + distance + reach)
    there = (entries < count) & (keys < length)
    of_rows = entries.to(tl.int64) * stride + number
    of_keys = keys.to(tl.int64) * stride + number
    if POSITIONS == 1:
        product = tl.load(c2p_pointer + of_rows, mask=there, other=0.0).to(tl.float32)
    else:
        product = tl.load(p2c_pointer + of_keys, mask=there, other=0.0).to(tl.float32)
        if POSITIONS == 3:
            product += tl.load(c2p_pointer + of_rows, mask=there, other=0.0).to(tl.float32)
    return product


@triton.jit
def add_terms(
    dots,
    rows,
    entries,
    keys,
    length,
    terms,
    WINDOW: tl.constexpr,
    CAUSAL: tl.constexpr,
    HAS_SLOPES: tl.constexpr,
    HAS_BIAS: tl.constexpr,
    POSITIONS: tl.constexpr,
    LISTED: tl.constexpr,
    MASKED: tl.constexpr,
):
    """Return scores and a factor: ``score * factor`` is the score times log2 e.

    ``dots``: products of queries and keys. ``entries``: the number of each row among the queries.
    ``terms``: scale and slope, times log2 e; the bias and its reach; what ``position_products``
    takes. Without slopes and a bias the scale is the factor, which costs nothing in the FFMA that
    subtracts the maximum. Scores are -inf where a row does not see a key, if MASKED. LISTED
    keys are masked within the window, where the loop over the window computes them.
    """
    scale, slope, bias_pointer, reach, positions = terms
    distance = keys - rows
    score = dots
    if POSITIONS:
        score += position_products(positions, rows, entries, keys, length, POSITIONS)
    if HAS_SLOPES or HAS_BIAS:
        score *= scale
        scale = 1.0
    if HAS_SLOPES:
        score -= slope * tl.abs(distance).to(tl.float32)
    if HAS_BIAS:
        LOG2E: tl.constexpr = 1.4426950408889634
        entry = tl.minimum(tl.maximum(distance, -reach), reach) + reach
        score += tl.load(bias_pointer + entry).to(tl.float32) * LOG2E
    if MASKED:
        seen = keys < length
        if WINDOW >= 0:
            if LISTED:
                seen &= tl.abs(distance) > WINDOW
            else:
                seen &= tl.abs(distance) <= WINDOW
        if CAUSAL:
            seen &= distance <= 0
        score = tl.where(seen, score, float("-inf"))
    return score, scale
