"""Bias, activation and gate in one pass over the elements: the forward kernel."""

from __future__ import annotations

from typing import TYPE_CHECKING

import triton
import triton.language as tl

from ..common.launch import cdiv, next_power_of_2, on_device
from .functions import multiplier

if TYPE_CHECKING:
    from torch import Tensor

# Columns of a program's block at most, and its elements.
BLOCK_COLUMNS = 1024
BLOCK_ELEMENTS = 2048
NUM_WARPS = 8


@triton.jit
def _activation_forward_kernel(
    input_pointer,  # [T, F], or [T, 2 F]: what is activated, then its gate
    bias_pointer,  # [F] or [2 F], or null
    output_pointer,  # [T, F]
    num_rows,
    WIDTH: tl.constexpr,
    BLOCK_ROWS: tl.constexpr,
    BLOCK_COLUMNS: tl.constexpr,
    HAS_BIAS: tl.constexpr,
    GATED: tl.constexpr,
    ACTIVATION: tl.constexpr,
):
    rows = tl.program_id(0).to(tl.int64) * BLOCK_ROWS + tl.arange(0, BLOCK_ROWS)
    columns = tl.program_id(1) * BLOCK_COLUMNS + tl.arange(0, BLOCK_COLUMNS)
    in_row = columns < WIDTH
    inside = (rows[:, None] < num_rows) & in_row[None, :]
    places = rows[:, None] * (2 * WIDTH if GATED else WIDTH) + columns[None, :]
    x = tl.load(input_pointer + places, mask=inside, other=0.0).to(tl.float32)
    if HAS_BIAS:
        x += tl.load(bias_pointer + columns, mask=in_row, other=0.0).to(tl.float32)[None, :]
    y = x * multiplier(x, ACTIVATION)
    if GATED:
        gate = tl.load(input_pointer + places + WIDTH, mask=inside, other=0.0).to(tl.float32)
        if HAS_BIAS:
            shift = tl.load(bias_pointer + columns + WIDTH, mask=in_row, other=0.0)
            gate += shift.to(tl.float32)[None, :]
        y *= gate
    here = rows[:, None] * WIDTH + columns[None, :]
    tl.store(output_pointer + here, y.to(output_pointer.dtype.element_ty), mask=inside)


def block_shape(width: int, *, elements: int = BLOCK_ELEMENTS) -> tuple[int, int]:
    """Return (rows, columns) of the block of about ``elements`` that one program computes."""
    columns = min(BLOCK_COLUMNS, next_power_of_2(max(width, 16)))
    return elements // columns, columns


@on_device
def activation_forward(
    input_TG: Tensor, bias_G: Tensor | None, activation: str, *, gated: bool
) -> Tensor:
    """Launch the forward kernel on contiguous tensors: G = 2 F if gated, else F; returns [T, F]."""
    num_rows, width = input_TG.shape[0], input_TG.shape[1] // (2 if gated else 1)
    output = input_TG.new_empty(num_rows, width)
    if output.numel() == 0:
        return output
    block_rows, block_columns = block_shape(width)
    grid = (cdiv(num_rows, block_rows), cdiv(width, block_columns))
    _activation_forward_kernel[grid](
        input_TG,
        bias_G,
        output,
        num_rows,
        WIDTH=width,
        BLOCK_ROWS=block_rows,
        BLOCK_COLUMNS=block_columns,
        HAS_BIAS=bias_G is not None,
        GATED=gated,
        ACTIVATION=activation,
        num_warps=NUM_WARPS,
    )
    return output
