"""Bias and GELU in one pass over the elements: the forward kernel."""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from .gelu import gelu_share

# Elements a program works on, in rows of at most so many.
BLOCK_COLUMNS = 1024
BLOCK_ELEMENTS = 2048
NUM_WARPS = 8


@triton.jit
def _bias_gelu_forward_kernel(
    input_pointer,  # [T, F]
    bias_pointer,  # [F] or null
    output_pointer,  # [T, F]
    num_rows,
    WIDTH: tl.constexpr,
    BLOCK_ROWS: tl.constexpr,
    BLOCK_COLUMNS: tl.constexpr,
    HAS_BIAS: tl.constexpr,
    TANH: tl.constexpr,
):
    rows = tl.program_id(0).to(tl.int64) * BLOCK_ROWS + tl.arange(0, BLOCK_ROWS)
    columns = tl.program_id(1) * BLOCK_COLUMNS + tl.arange(0, BLOCK_COLUMNS)
    in_row = columns < WIDTH
    inside = (rows[:, None] < num_rows) & in_row[None, :]
    places = rows[:, None] * WIDTH + columns[None, :]
    x = tl.load(input_pointer + places, mask=inside, other=0.0).to(tl.float32)
    if HAS_BIAS:
        x += tl.load(bias_pointer + columns, mask=in_row, other=0.0).to(tl.float32)[None, :]
    y = x * gelu_share(x, TANH)
    tl.store(output_pointer + places, y.to(output_pointer.dtype.element_ty), mask=inside)


def block_shape(width: int) -> tuple[int, int]:
    """Choose rows and columns of a program's block."""
    columns = min(BLOCK_COLUMNS, triton.next_power_of_2(max(width, 16)))
    return BLOCK_ELEMENTS // columns, columns


def bias_gelu_forward(input_TF: Tensor, bias_F: Tensor | None, tanh: bool) -> Tensor:
    """Launch the kernel on contiguous tensors; returns [T, F]."""
    num_rows, width = input_TF.shape
    output = torch.empty_like(input_TF)
    if output.numel() == 0:
        return output
    block_rows, block_columns = block_shape(width)
    grid = (triton.cdiv(num_rows, block_rows), triton.cdiv(width, block_columns))
    _bias_gelu_forward_kernel[grid](
        input_TF,
        bias_F,
        output,
        num_rows,
        WIDTH=width,
        BLOCK_ROWS=block_rows,
        BLOCK_COLUMNS=block_columns,
        HAS_BIAS=bias_F is not None,
        TANH=tanh,
        num_warps=NUM_WARPS,
    )
    return output
