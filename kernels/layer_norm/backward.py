"""The backward kernel of layer and RMS norm: one pass, weight gradients without atomics."""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from ..common.dropout import keep_scale
from ..common.launch import RowTile, cdiv, num_programs, on_device, row_tile
from .forward import fuses

# Programs per multiprocessor, and stages of the pipeline: two blocks of rows are read ahead.
PROGRAMS, NUM_STAGES = 4, 3
# Bytes of a tensor's block up to which two, of three tensors, fit into any GPU's shared memory.
MOST_BYTES_AHEAD = 8192


@triton.jit
def _layer_norm_backward_kernel(
    grad_output_pointer,  # [T, D]
    joining_pointer,  # [T, D] the gradient of the returned sum, or null
    summed_pointer,  # [T, D] the input of the normalisation
    weight_pointer,  # [D]
    mean_pointer,  # float32 [T], or null for RMS norm
    rstd_pointer,  # float32 [T]
    seed_pointer,  # int64 [1] or null
    grad_summed_pointer,  # [T, D] the residual's gradient
    grad_input_pointer,  # [T, D] the branch's, or null where it is the same
    grad_weight_pointer,  # float32 [programs, D]
    grad_bias_pointer,  # float32 [programs, D], or null without a bias
    num_rows,
    dropout,
    WIDTH: tl.constexpr,
    BLOCK_WIDTH: tl.constexpr,
    BLOCK_ROWS: tl.constexpr,
    HAS_DROPOUT: tl.constexpr,
    HAS_JOINING: tl.constexpr,
    HAS_BIAS: tl.constexpr,
    CENTRED: tl.constexpr,
    NUM_STAGES: tl.constexpr,
):
    columns = tl.arange(0, BLOCK_WIDTH)
    in_row = columns < WIDTH
    weight = tl.load(weight_pointer + columns, mask=in_row, other=0.0).to(tl.float32)
    grad_weight = tl.zeros([BLOCK_WIDTH], dtype=tl.float32)
    grad_bias = tl.zeros([BLOCK_WIDTH], dtype=tl.float32)
    step = tl.num_programs(0).to(tl.int64) * BLOCK_ROWS
    first = tl.program_id(0).to(tl.int64) * BLOCK_ROWS
    for start in tl.range(first, num_rows, step, num_stages=NUM_STAGES):
        rows = start + tl.arange(0, BLOCK_ROWS)
        inside = (rows[:, None] < num_rows) & in_row[None, :]
        places = rows[:, None] * WIDTH + columns[None, :]
        dy = tl.load(grad_output_pointer + places, mask=inside, other=0.0).to(tl.float32)
        x = tl.load(summed_pointer + places, mask=inside, other=0.0).to(tl.float32)
        rstd = tl.load(rstd_pointer + rows, mask=rows < num_rows, other=0.0)
        if CENTRED:
            mean = tl.load(mean_pointer + rows, mask=rows < num_rows, other=0.0)
            x = tl.where(inside, x - mean[:, None], 0.0)
        normal = x * rstd[:, None]
        grad_weight += tl.sum(dy * normal, axis=0)
        if HAS_BIAS:
            grad_bias += tl.sum(dy, axis=0)
        scaled = dy * weight[None, :]
        along = tl.sum(scaled * normal, axis=1) / WIDTH
        if CENTRED:
            level = tl.sum(scaled, axis=1) / WIDTH
            scaled = tl.where(inside, scaled - level[:, None], 0.0)
        dx = (scaled - normal * along[:, None]) * rstd[:, None]
        if HAS_JOINING:
            dx += tl.load(joining_pointer + places, mask=inside, other=0.0).to(tl.float32)
        kind = grad_summed_pointer.dtype.element_ty
        tl.store(grad_summed_pointer + places, dx.to(kind), mask=inside)
        if HAS_DROPOUT:
            dx *= keep_scale(tl.load(seed_pointer), rows, columns, dropout)
            tl.store(grad_input_pointer + places, dx.to(kind), mask=inside)
    partial = tl.program_id(0) * WIDTH + columns
    tl.store(grad_weight_pointer + partial, grad_weight, mask=in_row)
    if HAS_BIAS:
        tl.store(grad_bias_pointer + partial, grad_bias, mask=in_row)


def num_stages(tile: RowTile, itemsize: int) -> int:
    """Return the stages of the kernel's pipeline: 1, which reads nothing ahead, for wide rows."""
    return NUM_STAGES if tile.rows * tile.width * itemsize <= MOST_BYTES_AHEAD else 1


@on_device
def layer_norm_backward(
    grad_output_TD: Tensor,
    joining_TD: Tensor | None,
    summed_TD: Tensor,
    weight_D: Tensor,
    mean_T: Tensor,
    rstd_T: Tensor,
    seed: Tensor | None,
    dropout: float,
    *,
    has_bias: bool,
    centred: bool,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Launch the backward kernel on contiguous tensors.

    ``joining_TD``: the gradient of the returned sum of input and residual.
    Returns the gradients of the input [T, D], of the residual [T, D] (empty without dropout, where
    both are equal), of the weight and of the bias, float32 [D] (empty without a bias).
    """
    num_rows, width = summed_TD.shape
    grad_summed = torch.empty_like(summed_TD)
    dropped = seed is not None
    grad_input = torch.empty_like(summed_TD) if dropped else summed_TD.new_empty(0)
    tile = row_tile(width)
    programs = max(1, min(num_programs(summed_TD, PROGRAMS), cdiv(num_rows, tile.rows)))
    sums = torch.empty(programs, width, dtype=torch.float32, device=summed_TD.device)
    bias_sums = torch.empty_like(sums) if has_bias else sums.new_empty(0, 0)
    _layer_norm_backward_kernel[(programs,)](
        grad_output_TD,
        joining_TD,
        summed_TD,
        weight_D,
        mean_T,
        rstd_T,
        seed,
        grad_summed,
        grad_input,
        sums,
        bias_sums if has_bias else None,
        num_rows,
        dropout,
        WIDTH=width,
        BLOCK_WIDTH=tile.width,
        BLOCK_ROWS=tile.rows,
        HAS_DROPOUT=dropped,
        HAS_JOINING=joining_TD is not None,
        HAS_BIAS=has_bias,
        CENTRED=centred,
        NUM_STAGES=num_stages(tile, summed_TD.element_size()),
        num_warps=tile.num_warps,
        enable_fp_fusion=fuses(width),
    )
    grad_weight, grad_bias = sums.sum(dim=0), bias_sums.sum(dim=0)
    if dropped:
        return grad_input, grad_summed, grad_weight, grad_bias
    return grad_summed, grad_input, grad_weight, grad_bias
