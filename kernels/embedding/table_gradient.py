"""The gradient of an embedding table: the rows of each id summed in float32, bit-reproducibly.

How it works: rows are sorted by id (stable), and a program sums 32 of them. An id within one chunk
is written to the table. An id that crosses chunks leaves a partial sum in each; a second kernel
adds these in a fixed order. No atomics, and no program is long, however frequent an id.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from ..common.launch import cdiv, next_power_of_2, on_device

# Sorted rows that one program sums, and their columns.
CHUNK = 32
BLOCK_COLUMNS = 512
# Partial sums loaded at once where an id fills many chunks.
BLOCK_CHUNKS = 8
NUM_WARPS = 4


@triton.jit
def _chunk_sums_kernel(
    grad_pointer,  # [T, E]
    order_pointer,  # int64 [T] rows by id
    ids_pointer,  # int64 [T] their ids, ascending
    grad_table_pointer,  # [V, E] receives the sums of ids within one chunk
    entering_pointer,  # float32 [chunks, E] sums of ids that began in an earlier chunk
    leaving_pointer,  # float32 [chunks, E] sums of ids that begin here and continue
    num_rows,
    WIDTH: tl.constexpr,
    CHUNK: tl.constexpr,
    BLOCK_COLUMNS: tl.constexpr,
):
    chunk = tl.program_id(0).to(tl.int64)
    columns = tl.program_id(1) * BLOCK_COLUMNS + tl.arange(0, BLOCK_COLUMNS)
    in_row = columns < WIDTH
    start = chunk * CHUNK
    stop = tl.minimum(start + CHUNK, num_rows)
    # Ids are not negative: -1 stands before the first row and after the last.
    before = tl.load(ids_pointer + start - 1, mask=start > 0, other=-1)
    after = tl.load(ids_pointer + stop, mask=stop < num_rows, other=-1)
    total = tl.zeros([BLOCK_COLUMNS], dtype=tl.float32)
    for place in range(start, stop):
        here = tl.load(ids_pointer + place)
        row = tl.load(order_pointer + place) * WIDTH
        total += tl.load(grad_pointer + row + columns, mask=in_row, other=0.0).to(tl.float32)
        follows = tl.load(ids_pointer + place + 1, mask=place + 1 < stop, other=-1)
        if follows != here:
            # An id of the row before the chunk enters it; one of the row after leaves it.
            if here == before:
                tl.store(entering_pointer + chunk * WIDTH + columns, total, mask=in_row)
            elif here == after:
                tl.store(leaving_pointer + chunk * WIDTH + columns, total, mask=in_row)
            else:
                table_row = grad_table_pointer + here * WIDTH + columns
                kind = grad_table_pointer.dtype.element_ty
                tl.store(table_row, total.to(kind), mask=in_row)
            total = tl.zeros([BLOCK_COLUMNS], dtype=tl.float32)


@triton.jit
def _joined_sums_kernel(
    ids_pointer,  # int64 [T] ascending
    grad_table_pointer,  # [V, E] receives the sums of ids in several chunks
    entering_pointer,  # float32 [chunks, E]
    leaving_pointer,  # float32 [chunks, E]
    num_chunks,
    WIDTH: tl.constexpr,
    CHUNK: tl.constexpr,
    BLOCK_CHUNKS: tl.constexpr,
    BLOCK_COLUMNS: tl.constexpr,
):
    chunk = tl.program_id(0).to(tl.int64)
    columns = tl.program_id(1) * BLOCK_COLUMNS + tl.arange(0, BLOCK_COLUMNS)
    in_row = columns < WIDTH
    start = chunk * CHUNK
    # Every chunk but the last is full.
    last = tl.load(ids_pointer + start + CHUNK - 1)
    begins = (tl.load(ids_pointer + start - 1, mask=start > 0, other=-1) != last) | (
        tl.load(ids_pointer + start) != last
    )
    goes_on = tl.load(ids_pointer + start + CHUNK) == last
    if begins & goes_on:
        total = tl.load(leaving_pointer + chunk * WIDTH + columns, mask=in_row, other=0.0)
        following = chunk + 1 + tl.arange(0, BLOCK_CHUNKS)
        more = goes_on
        while more:
            known = following < num_chunks
            first = tl.load(ids_pointer + following * CHUNK, mask=known, other=-1)
            same = first == last
            places = following[:, None] * WIDTH + columns[None, :]
            mask = same[:, None] & in_row[None, :]
            total += tl.sum(tl.load(entering_pointer + places, mask=mask, other=0.0), axis=0)
            following += BLOCK_CHUNKS
            more = tl.sum(same.to(tl.int32), axis=0) == BLOCK_CHUNKS
        table_row = grad_table_pointer + last * WIDTH + columns
        tl.store(table_row, total.to(grad_table_pointer.dtype.element_ty), mask=in_row)


@on_device
def table_gradient(grad_TE: Tensor, ids_T: Tensor, num_ids: int) -> Tensor:
    """Return a table's gradient [num_ids, E]: for each id, the sum of its rows of ``grad_TE``.

    ``ids_T``: the id of each row; an id without a row has zeros.
    """
    num_rows, width = grad_TE.shape
    table = grad_TE.new_zeros(num_ids, width)
    if num_rows == 0:
        return table
    ids, order = torch.sort(ids_T.long(), stable=True)
    num_chunks = cdiv(num_rows, CHUNK)
    entering = torch.empty(num_chunks, width, dtype=torch.float32, device=grad_TE.device)
    leaving = torch.empty_like(entering)
    columns = min(BLOCK_COLUMNS, next_power_of_2(max(width, 16)))
    blocks = cdiv(width, columns)
    shared = {"WIDTH": width, "CHUNK": CHUNK, "BLOCK_COLUMNS": columns, "num_warps": NUM_WARPS}
    _chunk_sums_kernel[(num_chunks, blocks)](
        grad_TE, order, ids, table, entering, leaving, num_rows, **shared
    )
    if num_chunks > 1:
        _joined_sums_kernel[(num_chunks - 1, blocks)](
            ids, table, entering, leaving, num_chunks, BLOCK_CHUNKS=BLOCK_CHUNKS, **shared
        )
    return table
