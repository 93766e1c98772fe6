"""The forward kernels of pooling: partial results of chunks, then one result per sequence.

A program sums 128 rows of a sequence, so that a long text is many programs' work. A second kernel
adds the partial results of each sequence in a fixed order, scales and normalises.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from ..common.launch import cdiv, on_device, row_tile

# Rows of a sequence that one program sums.
CHUNK = 128
# The rows and columns that a program loads at once: 64 bfloat16 fill a cache line of 128 bytes.
BLOCK_ROWS = 32
BLOCK_COLUMNS = 64
NUM_WARPS = 4
# Modes that copy one row, without chunks.
SINGLE_ROW = ("cls", "lasttoken")


@triton.jit
def chunk_bounds(tiles_pointer, cu_seqlens_pointer, CHUNK: tl.constexpr):
    """Return this program's sequence, the first row of that, and first row and end of its chunk."""
    tile = tl.program_id(0).to(tl.int64)
    sequence = tl.load(tiles_pointer + 2 * tile).to(tl.int64)
    block = tl.load(tiles_pointer + 2 * tile + 1).to(tl.int64)
    start = tl.load(cu_seqlens_pointer + sequence).to(tl.int64)
    stop = tl.load(cu_seqlens_pointer + sequence + 1).to(tl.int64)
    first = start + block * CHUNK
    return sequence, start, first, tl.minimum(first + CHUNK, stop)


@triton.jit
def first_slot(start, sequence, CHUNK: tl.constexpr):
    """Return the index of a sequence's first partial result among those of the batch."""
    return start // CHUNK + sequence


@triton.jit
def divisor(length, MODE: tl.constexpr):
    """Return the divisor of the weighted sum over a sequence, float32."""
    n = tl.maximum(length, 1).to(tl.float32)
    if MODE == "mean":
        return n
    if MODE == "mean_sqrt_len_tokens":
        return tl.sqrt_rn(n)
    if MODE == "weightedmean":
        return n * (n + 1.0) * 0.5
    return n * 0.0 + 1.0


@triton.jit
def merge_maximum(highest, ties, values, counts):
    """Return the maximum and its number of ties, updated by rows of values; NaN propagates.

    ``counts``: the number of ties that each value stands for.
    """
    nothing = tl.sum(tl.where(values == values, 0.0, values), axis=0)
    nothing += tl.where(highest == highest, 0.0, highest)
    found = tl.maximum(highest, tl.max(values, axis=0)) + nothing
    ties = tl.where(highest == found, ties, 0.0)
    ties += tl.sum(tl.where(values == found[None, :], counts, 0.0), axis=0)
    return found, ties


@triton.jit
def _pooling_chunks_kernel(
    hidden_pointer,  # [T, D]
    tiles_pointer,  # int32 [chunks, 2] (sequence, chunk)
    cu_seqlens_pointer,  # int32 [B + 1]
    partial_pointer,  # float32 [slots, D] each chunk's sum, or its highest
    partial_ties_pointer,  # float32 [slots, D] rows that reach it, or null where sums are taken
    WIDTH: tl.constexpr,
    CHUNK: tl.constexpr,
    BLOCK_ROWS: tl.constexpr,
    BLOCK_COLUMNS: tl.constexpr,
    MODE: tl.constexpr,
):
    sequence, start, first, stop = chunk_bounds(tiles_pointer, cu_seqlens_pointer, CHUNK)
    columns = tl.program_id(1) * BLOCK_COLUMNS + tl.arange(0, BLOCK_COLUMNS)
    in_row = columns < WIDTH
    lowest = float("-inf") if MODE == "max" else 0.0
    total = tl.full([BLOCK_COLUMNS], lowest, dtype=tl.float32)
    ties = tl.zeros([BLOCK_COLUMNS], dtype=tl.float32)
    for begin in range(first, stop, BLOCK_ROWS):
        rows = begin + tl.arange(0, BLOCK_ROWS)
        inside = (rows < stop)[:, None] & in_row[None, :]
        places = rows[:, None] * WIDTH + columns[None, :]
        x = tl.load(hidden_pointer + places, mask=inside, other=lowest).to(tl.float32)
        if MODE == "max":
            total, ties = merge_maximum(total, ties, x, tl.where(inside, 1.0, 0.0))
        elif MODE == "weightedmean":
            total += tl.sum(x * (rows - start + 1).to(tl.float32)[:, None], axis=0)
        else:
            total += tl.sum(x, axis=0)
    slot = first_slot(start, sequence, CHUNK) + (first - start) // CHUNK
    tl.store(partial_pointer + slot * WIDTH + columns, total, mask=in_row)
    if MODE == "max":
        tl.store(partial_ties_pointer + slot * WIDTH + columns, ties, mask=in_row)


@triton.jit
def _pooling_join_kernel(
    hidden_pointer,  # [T, D]
    cu_seqlens_pointer,  # int32 [B + 1]
    partial_pointer,  # float32 [slots, D]
    partial_ties_pointer,  # float32 [slots, D], or null
    output_pointer,  # [B, D]
    pooled_pointer,  # float32 [B, D] before normalisation, or null where backward does not read it
    ties_pointer,  # float32 [B, D] rows that reach the highest, or null
    WIDTH: tl.constexpr,
    CHUNK: tl.constexpr,
    BLOCK_CHUNKS: tl.constexpr,
    BLOCK_WIDTH: tl.constexpr,
    MODE: tl.constexpr,
    NORMALIZE: tl.constexpr,
):
    sequence = tl.program_id(0).to(tl.int64)
    columns = tl.arange(0, BLOCK_WIDTH)
    in_row = columns < WIDTH
    start = tl.load(cu_seqlens_pointer + sequence).to(tl.int64)
    stop = tl.load(cu_seqlens_pointer + sequence + 1).to(tl.int64)
    filled = columns < tl.where(stop > start, WIDTH, 0)
    if MODE == "cls" or MODE == "lasttoken":
        row = start if MODE == "cls" else stop - 1
        pooled = tl.load(hidden_pointer + row * WIDTH + columns, mask=filled, other=0.0)
        pooled = pooled.to(tl.float32)
    else:
        lowest = float("-inf") if MODE == "max" else 0.0
        pooled = tl.full([BLOCK_WIDTH], lowest, dtype=tl.float32)
        ties = tl.zeros([BLOCK_WIDTH], dtype=tl.float32)
        begin = first_slot(start, sequence, CHUNK)
        end = begin + (stop - start + CHUNK - 1) // CHUNK
        for at in range(begin, end, BLOCK_CHUNKS):
            slots = at + tl.arange(0, BLOCK_CHUNKS)
            known = (slots < end)[:, None] & in_row[None, :]
            places = slots[:, None] * WIDTH + columns[None, :]
            part = tl.load(partial_pointer + places, mask=known, other=lowest)
            if MODE == "max":
                counts = tl.load(partial_ties_pointer + places, mask=known, other=0.0)
                pooled, ties = merge_maximum(pooled, ties, part, counts)
            else:
                pooled += tl.sum(part, axis=0)
        pooled = tl.where(filled, pooled / divisor(stop - start, MODE), 0.0)
    here = sequence * WIDTH + columns
    if MODE == "max":
        # NaN equals nothing, so it has no ties: dividing by NaN keeps it NaN in backward.
        ties = tl.where(pooled == pooled, ties, pooled)
        tl.store(ties_pointer + here, ties, mask=in_row)
    if NORMALIZE or MODE == "max":
        tl.store(pooled_pointer + here, pooled, mask=in_row)
    if NORMALIZE:
        pooled /= tl.maximum(tl.sqrt_rn(tl.sum(pooled * pooled, axis=0)), 1e-12)
    tl.store(output_pointer + here, pooled.to(output_pointer.dtype.element_ty), mask=in_row)


@on_device
def pooling_forward(
    hidden_TD: Tensor, cu_seqlens: Tensor, tiles: Tensor, mode: str, *, normalize: bool
) -> tuple[Tensor, Tensor, Tensor]:
    """Launch the forward kernels on contiguous tensors; ``tiles``: the chunks of ``CHUNK`` rows.

    Returns the output [B, D] and, for backward, two float32 [B, D]: the pooled values before
    normalisation (empty unless normalised or ``max``), and the number of rows that reach the
    maximum (empty unless ``max``).
    """
    num_rows, width = hidden_TD.shape
    num_sequences = len(cu_seqlens) - 1
    output = hidden_TD.new_empty(num_sequences, width)
    wide = torch.empty_like(output, dtype=torch.float32)
    pooled = wide if normalize or mode == "max" else wide.new_empty(0)
    ties = torch.empty_like(wide) if mode == "max" else wide.new_empty(0)
    if output.numel() == 0:
        return output, pooled, ties
    num_slots = 0 if mode in SINGLE_ROW else num_rows // CHUNK + num_sequences
    partial = wide.new_empty(num_slots, width)
    partial_ties = torch.empty_like(partial) if mode == "max" else None
    shared = {"WIDTH": width, "CHUNK": CHUNK, "MODE": mode}
    if num_slots and len(tiles):
        _pooling_chunks_kernel[(len(tiles), cdiv(width, BLOCK_COLUMNS))](
            hidden_TD,
            tiles,
            cu_seqlens,
            partial,
            partial_ties,
            BLOCK_ROWS=BLOCK_ROWS,
            BLOCK_COLUMNS=BLOCK_COLUMNS,
            num_warps=NUM_WARPS,
            **shared,
        )
    tile = row_tile(width, most_elements=16384)
    _pooling_join_kernel[(num_sequences,)](
        hidden_TD,
        cu_seqlens,
        partial,
        partial_ties,
        output,
        pooled,
        ties,
        BLOCK_CHUNKS=tile.rows,
        BLOCK_WIDTH=tile.width,
        NORMALIZE=normalize,
        num_warps=tile.num_warps,
        **shared,
    )
    return output, pooled, ties
