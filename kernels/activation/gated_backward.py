"""The backward kernel of activation and gate: both halves and the bias in one pass, no atomics."""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from .backward import NUM_PROGRAMS
from .forward import NUM_WARPS, block_shape
from .gate import passed_share, slope


def backward_block_shape(width: int) -> tuple[int, int]:
    """Choose rows and columns of a program's block: half the rows, as both halves are held."""
    rows, columns = block_shape(width)
    return rows // 2, columns


@triton.jit
def _gated_backward_kernel(
    grad_output_pointer,  # [T, F]
    input_pointer,  # [T, 2 F]
    bias_pointer,  # [2 F] or null
    grad_input_pointer,  # [T, 2 F]
    grad_bias_pointer,  # float32 [programs, 2 F], or null without a bias
    num_rows,
    WIDTH: tl.constexpr,
    BLOCK_ROWS: tl.constexpr,
    BLOCK_COLUMNS: tl.constexpr,
    HAS_BIAS: tl.constexpr,
    ACTIVATION: tl.constexpr,
):
    columns = tl.program_id(1) * BLOCK_COLUMNS + tl.arange(0, BLOCK_COLUMNS)
    in_row = columns < WIDTH
    grad_bias = tl.zeros([BLOCK_COLUMNS], dtype=tl.float32)
    grad_gate_bias = tl.zeros([BLOCK_COLUMNS], dtype=tl.float32)
    step = tl.num_programs(0).to(tl.int64) * BLOCK_ROWS
    first = tl.program_id(0).to(tl.int64) * BLOCK_ROWS
    for start in range(first, num_rows, step):
        rows = start + tl.arange(0, BLOCK_ROWS)
        inside = (rows[:, None] < num_rows) & in_row[None, :]
        here = rows[:, None] * WIDTH + columns[None, :]
        places = rows[:, None] * (2 * WIDTH) + columns[None, :]
        dy = tl.load(grad_output_pointer + here, mask=inside, other=0.0).to(tl.float32)
        x = tl.load(input_pointer + places, mask=inside, other=0.0).to(tl.float32)
        gate = tl.load(input_pointer + places + WIDTH, mask=inside, other=0.0).to(tl.float32)
        if HAS_BIAS:
            x += tl.load(bias_pointer + columns, mask=in_row, other=0.0).to(tl.float32)[None, :]
            shift = tl.load(bias_pointer + columns + WIDTH, mask=in_row, other=0.0)
            gate += shift.to(tl.float32)[None, :]
        share = passed_share(x, ACTIVATION)
        dx = dy * gate * slope(x, share, ACTIVATION)
        dgate = dy * (x * share)
        if HAS_BIAS:
            grad_bias += tl.sum(dx, axis=0)
            grad_gate_bias += tl.sum(dgate, axis=0)
        kind = grad_input_pointer.dtype.element_ty
        tl.store(grad_input_pointer + places, dx.to(kind), mask=inside)
        tl.store(grad_input_pointer + places + WIDTH, dgate.to(kind), mask=inside)
    if HAS_BIAS:
        partial = tl.program_id(0) * (2 * WIDTH) + columns
        tl.store(grad_bias_pointer + partial, grad_bias, mask=in_row)
        tl.store(grad_bias_pointer + partial + WIDTH, grad_gate_bias, mask=in_row)


def gated_backward(
    grad_output_TF: Tensor, input_TG: Tensor, bias_G: Tensor | None, activation: str
) -> tuple[Tensor, Tensor]:
    """Launch the kernel on contiguous tensors, G = 2 F.

    Returns the gradients of the input [T, G] and of the bias, float32 [G], empty without one.
    """
    num_rows, width = grad_output_TF.shape
    grad_input = torch.empty_like(input_TG)
    block_rows, block_columns = backward_block_shape(width)
    num_blocks = triton.cdiv(width, block_columns)
    programs = max(1, min(NUM_PROGRAMS // max(num_blocks, 1), triton.cdiv(num_rows, block_rows)))
    shape = (programs, 2 * width) if bias_G is not None else (0, 0)
    partials = torch.zeros(shape, dtype=torch.float32, device=input_TG.device)
    if input_TG.numel() > 0:
        _gated_backward_kernel[(programs, num_blocks)](
            grad_output_TF,
            input_TG,
            bias_G,
            grad_input,
            partials if bias_G is not None else None,
            num_rows,
            WIDTH=width,
            BLOCK_ROWS=block_rows,
            BLOCK_COLUMNS=block_columns,
            HAS_BIAS=bias_G is not None,
            ACTIVATION=activation,
            num_warps=NUM_WARPS,
        )
    return grad_input, partials.sum(dim=0)
