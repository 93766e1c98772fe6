"""Pooling's backward kernels: one for a gradient per sequence, one for the gradients of all rows.

The first computes the gradient that a row of weight 1 gets; the second multiplies it by each row's
weight.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from ..common.launch import cdiv, on_device, row_tile
from .forward import BLOCK_COLUMNS, BLOCK_ROWS, CHUNK, NUM_WARPS, chunk_bounds, divisor


@triton.jit
def _pooling_shares_kernel(
    grad_output_pointer,  # [B, D]
    cu_seqlens_pointer,  # int32 [B + 1]
    pooled_pointer,  # float32 [B, D] before it was normalised, or null
    ties_pointer,  # float32 [B, D] rows that reach the highest, or null
    share_pointer,  # float32 [B, D] the gradient of a row of weight 1
    WIDTH: tl.constexpr,
    BLOCK_WIDTH: tl.constexpr,
    MODE: tl.constexpr,
    NORMALIZE: tl.constexpr,
):
    sequence = tl.program_id(0).to(tl.int64)
    columns = tl.arange(0, BLOCK_WIDTH)
    in_row = columns < WIDTH
    here = sequence * WIDTH + columns
    length = tl.load(cu_seqlens_pointer + sequence + 1) - tl.load(cu_seqlens_pointer + sequence)
    share = tl.load(grad_output_pointer + here, mask=in_row, other=0.0).to(tl.float32)
    if NORMALIZE:
        pooled = tl.load(pooled_pointer + here, mask=in_row, other=0.0)
        norm = tl.sqrt_rn(tl.sum(pooled * pooled, axis=0))
        least = tl.maximum(norm, 1e-12)
        unit = pooled / least
        # A norm below 1e-12 is clamped, hence constant.
        along = tl.where(norm < 1e-12, 0.0, tl.sum(unit * share, axis=0))
        share = (share - unit * along) / least
    if MODE == "max":
        filled = columns < tl.where(length > 0, WIDTH, 0)
        share /= tl.load(ties_pointer + here, mask=filled, other=1.0)
    else:
        share /= divisor(length, MODE)
    tl.store(share_pointer + here, share, mask=in_row)


@triton.jit
def _pooling_spread_kernel(
    hidden_pointer,  # [T, D], or null where values are not compared
    tiles_pointer,  # int32 [chunks, 2] (sequence, chunk)
    cu_seqlens_pointer,  # int32 [B + 1]
    pooled_pointer,  # float32 [B, D] the highest, or null
    share_pointer,  # float32 [B, D]
    grad_hidden_pointer,  # [T, D]
    WIDTH: tl.constexpr,
    CHUNK: tl.constexpr,
    BLOCK_ROWS: tl.constexpr,
    BLOCK_COLUMNS: tl.constexpr,
    MODE: tl.constexpr,
):
    sequence, start, first, stop = chunk_bounds(tiles_pointer, cu_seqlens_pointer, CHUNK)
    last = tl.load(cu_seqlens_pointer + sequence + 1).to(tl.int64) - 1
    columns = tl.program_id(1) * BLOCK_COLUMNS + tl.arange(0, BLOCK_COLUMNS)
    in_row = columns < WIDTH
    place = sequence * WIDTH + columns
    share = tl.load(share_pointer + place, mask=in_row, other=0.0)[None, :]
    if MODE == "max":
        highest = tl.load(pooled_pointer + place, mask=in_row, other=0.0)[None, :]
    for begin in range(first, stop, BLOCK_ROWS):
        rows = begin + tl.arange(0, BLOCK_ROWS)
        inside = (rows < stop)[:, None] & in_row[None, :]
        places = rows[:, None] * WIDTH + columns[None, :]
        if MODE == "max":
            x = tl.load(hidden_pointer + places, mask=inside, other=0.0).to(tl.float32)
            grad = tl.where(x == highest, 1.0, 0.0) * share
        elif MODE == "weightedmean":
            grad = (rows - start + 1).to(tl.float32)[:, None] * share
        elif MODE == "cls":
            grad = tl.where((rows == start)[:, None], share, 0.0)
        elif MODE == "lasttoken":
            grad = tl.where((rows == last)[:, None], share, 0.0)
        else:
            grad = share + tl.zeros([BLOCK_ROWS, BLOCK_COLUMNS], dtype=tl.float32)
        kind = grad_hidden_pointer.dtype.element_ty
        tl.store(grad_hidden_pointer + places, grad.to(kind), mask=inside)


@on_device
def pooling_backward(
    grad_output_BD: Tensor,
    hidden_TD: Tensor,
    cu_seqlens: Tensor,
    tiles: Tensor,
    pooled_BD: Tensor,
    ties_BD: Tensor,
    mode: str,
    *,
    normalize: bool,
) -> Tensor:
    """Launch the backward kernels on contiguous tensors; returns the gradient of ``hidden_TD``."""
    num_sequences, width = grad_output_BD.shape
    grad_hidden = torch.empty_like(hidden_TD)
    if grad_hidden.numel() == 0:
        return grad_hidden
    share = torch.empty_like(grad_output_BD, dtype=torch.float32)
    tile = row_tile(width, most_elements=4096)
    _pooling_shares_kernel[(num_sequences,)](
        grad_output_BD,
        cu_seqlens,
        pooled_BD,
        ties_BD,
        share,
        WIDTH=width,
        BLOCK_WIDTH=tile.width,
        MODE=mode,
        NORMALIZE=normalize,
        num_warps=tile.num_warps,
    )
    _pooling_spread_kernel[(len(tiles), cdiv(width, BLOCK_COLUMNS))](
        hidden_TD,
        tiles,
        cu_seqlens,
        pooled_BD,
        share,
        grad_hidden,
        WIDTH=width,
        CHUNK=CHUNK,
        BLOCK_ROWS=BLOCK_ROWS,
        BLOCK_COLUMNS=BLOCK_COLUMNS,
        MODE=mode,
        num_warps=NUM_WARPS,
    )
    return grad_hidden
