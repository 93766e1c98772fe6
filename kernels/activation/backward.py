"""The backward kernel of bias and GELU: the bias's gradient in the same pass, without atomics."""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from .forward import NUM_WARPS, block_shape
from .gelu import gelu_share, gelu_slope

# About two programs per multiprocessor of the largest chip: each keeps its share of the bias's
# gradient in registers over many rows; the shares are then added in a fixed order.
NUM_PROGRAMS = 264


@triton.jit
def _bias_gelu_backward_kernel(
    grad_output_pointer,  # [T, F]
    input_pointer,  # [T, F]
    bias_pointer,  # [F] or null
    grad_input_pointer,  # [T, F]
    grad_bias_pointer,  # float32 [programs, F], or null without a bias
    num_rows,
    WIDTH: tl.constexpr,
    BLOCK_ROWS: tl.constexpr,
    BLOCK_COLUMNS: tl.constexpr,
    HAS_BIAS: tl.constexpr,
    TANH: tl.constexpr,
):
    columns = tl.program_id(1) * BLOCK_COLUMNS + tl.arange(0, BLOCK_COLUMNS)
    in_row = columns < WIDTH
    grad_bias = tl.zeros([BLOCK_COLUMNS], dtype=tl.float32)
    step = tl.num_programs(0).to(tl.int64) * BLOCK_ROWS
    first = tl.program_id(0).to(tl.int64) * BLOCK_ROWS
    for start in range(first, num_rows, step):
        rows = start + tl.arange(0, BLOCK_ROWS)
        inside = (rows[:, None] < num_rows) & in_row[None, :]
        places = rows[:, None] * WIDTH + columns[None, :]
        dy = tl.load(grad_output_pointer + places, mask=inside, other=0.0).to(tl.float32)
        x = tl.load(input_pointer + places, mask=inside, other=0.0).to(tl.float32)
        if HAS_BIAS:
            x += tl.load(bias_pointer + columns, mask=in_row, other=0.0).to(tl.float32)[None, :]
        dx = dy * gelu_slope(x, gelu_share(x, TANH), TANH)
        if HAS_BIAS:
            grad_bias += tl.sum(dx, axis=0)
        kind = grad_input_pointer.dtype.element_ty
        tl.store(grad_input_pointer + places, dx.to(kind), mask=inside)
    if HAS_BIAS:
        partial = tl.program_id(0) * WIDTH + columns
        tl.store(grad_bias_pointer + partial, grad_bias, mask=in_row)


def bias_gelu_backward(
    grad_output_TF: Tensor, input_TF: Tensor, bias_F: Tensor | None, tanh: bool
) -> tuple[Tensor, Tensor]:
    """Launch the kernel on contiguous tensors.

    Returns the gradients of the input [T, F] and of the bias, float32 [F], empty without one.
    """
    num_rows, width = input_TF.shape
    grad_input = torch.empty_like(input_TF)
    block_rows, block_columns = block_shape(width)
    num_blocks = triton.cdiv(width, block_columns)
    programs = max(1, min(NUM_PROGRAMS // num_blocks, triton.cdiv(num_rows, block_rows)))
    shape = (programs, width) if bias_F is not None else (0, 0)
    partials = torch.zeros(shape, dtype=torch.float32, device=input_TF.device)
    if input_TF.numel() > 0:
        _bias_gelu_backward_kernel[(programs, num_blocks)](
            grad_output_TF,
            input_TF,
            bias_F,
            grad_input,
            partials if bias_F is not None else None,
            num_rows,
            WIDTH=width,
            BLOCK_ROWS=block_rows,
            BLOCK_COLUMNS=block_columns,
            HAS_BIAS=bias_F is not None,
            TANH=tanh,
            num_warps=NUM_WARPS,
        )
    return grad_input, partials.sum(dim=0)
