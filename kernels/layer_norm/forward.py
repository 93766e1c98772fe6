"""Dropout, residual add and layer or RMS norm in one pass over the rows: the forward kernel."""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from ..common.dropout import keep_scale
from ..common.launch import cdiv, on_device, row_tile


@triton.jit
def _layer_norm_forward_kernel(
    input_pointer,  # [T, D] the branch
    residual_pointer,  # [T, D] or null
    weight_pointer,  # [D]
    bias_pointer,  # [D] or null
    seed_pointer,  # int64 [1] or null
    output_pointer,  # [T, D]
    summed_pointer,  # [T, D] the input of the normalisation, or null where not kept
    mean_pointer,  # float32 [T], or null for RMS norm
    rstd_pointer,  # float32 [T]
    num_rows,
    epsilon,
    dropout,
    WIDTH: tl.constexpr,
    BLOCK_WIDTH: tl.constexpr,
    BLOCK_ROWS: tl.constexpr,
    HAS_RESIDUAL: tl.constexpr,
    HAS_BIAS: tl.constexpr,
    HAS_DROPOUT: tl.constexpr,
    KEEPS_SUM: tl.constexpr,
    CENTRED: tl.constexpr,  # layer norm; RMS norm subtracts no mean
):
    rows = tl.program_id(0).to(tl.int64) * BLOCK_ROWS + tl.arange(0, BLOCK_ROWS)
    columns = tl.arange(0, BLOCK_WIDTH)
    in_row = columns < WIDTH
    inside = (rows[:, None] < num_rows) & in_row[None, :]
    places = rows[:, None] * WIDTH + columns[None, :]
    x = tl.load(input_pointer + places, mask=inside, other=0.0).to(tl.float32)
    if HAS_DROPOUT:
        x *= keep_scale(tl.load(seed_pointer), rows, columns, dropout)
    if HAS_RESIDUAL:
        x += tl.load(residual_pointer + places, mask=inside, other=0.0).to(tl.float32)
    if HAS_RESIDUAL or HAS_DROPOUT:
        # Normalise the sum as rounded for storage, because backward reads that.
        stored = x.to(output_pointer.dtype.element_ty)
        if KEEPS_SUM:
            tl.store(summed_pointer + places, stored, mask=inside)
        x = stored.to(tl.float32)
    centred = x
    if CENTRED:
        mean = tl.sum(x, axis=1) / WIDTH
        centred = tl.where(inside, x - mean[:, None], 0.0)
        tl.store(mean_pointer + rows, mean, mask=rows < num_rows)
    variance = tl.sum(centred * centred, axis=1) / WIDTH
    rstd = 1.0 / tl.sqrt_rn(variance + epsilon)
    weight = tl.load(weight_pointer + columns, mask=in_row, other=0.0).to(tl.float32)
    y = centred * rstd[:, None] * weight[None, :]
    if HAS_BIAS:
        y += tl.load(bias_pointer + columns, mask=in_row, other=0.0).to(tl.float32)[None, :]
    tl.store(output_pointer + places, y.to(output_pointer.dtype.element_ty), mask=inside)
    tl.store(rstd_pointer + rows, rstd, mask=rows < num_rows)


def fuses(width: int) -> bool:
    """Return whether the compiler may fuse products with the subtraction of the mean.

    The mean of one feature is the feature as rounded: a fused difference, which should be 0, would
    be half an ulp, times up to 1 / sqrt(epsilon). Several equal features, whose mean may be exact
    too, keep that error: kernels that fuse nothing take 4 to 13 % more instructions.
    """
    return width > 1


@on_device
def layer_norm_forward(
    input_TD: Tensor,
    residual_TD: Tensor | None,
    weight_D: Tensor,
    bias_D: Tensor | None,
    seed: Tensor | None,
    epsilon: float,
    dropout: float,
    *,
    keeps_sum: bool,
    centred: bool,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Launch the forward kernel on contiguous tensors.

    Returns the output [T, D], the input of the normalisation [T, D] (empty where that is the input
    itself or without ``keeps_sum``), and the mean (empty unless ``centred``) and reciprocal
    standard deviation of each row, float32 [T].
    """
    num_rows, width = input_TD.shape
    output = torch.empty_like(input_TD)
    kept = keeps_sum and (residual_TD is not None or seed is not None)
    summed = torch.empty_like(input_TD) if kept else input_TD.new_empty(0)
    rstd = torch.empty(num_rows, dtype=torch.float32, device=input_TD.device)
    mean = torch.empty_like(rstd) if centred else rstd.new_empty(0)
    if num_rows == 0:
        return output, summed, mean, rstd
    tile = row_tile(width)
    _layer_norm_forward_kernel[(cdiv(num_rows, tile.rows),)](
        input_TD,
        residual_TD,
        weight_D,
        bias_D,
        seed,
        output,
        summed,
        mean,
        rstd,
        num_rows,
        epsilon,
        dropout,
        WIDTH=width,
        BLOCK_WIDTH=tile.width,
        BLOCK_ROWS=tile.rows,
        HAS_RESIDUAL=residual_TD is not None,
        HAS_BIAS=bias_D is not None,
        HAS_DROPOUT=seed is not None,
        KEEPS_SUM=kept,
        CENTRED=centred,
        num_warps=tile.num_warps,
        enable_fp_fusion=fuses(width),
    )
    return output, summed, mean, rstd
