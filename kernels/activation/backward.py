"""The backward Triton kernel of bias, activation and gate: one pass, without atomics."""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from ..common.launch import cdiv, num_programs, on_device
from .forward import BLOCK_ELEMENTS, NUM_WARPS, block_shape
from .functions import derivative, multiplier

# Programs per multiprocessor, and stages of the pipeline: two blocks of rows are read ahead.
PROGRAMS, NUM_STAGES = 4, 3


@triton.jit
def _activation_backward_kernel(
    grad_output_pointer,  # [T, F]
    input_pointer,  # [T, F], or [T, 2 F]: what is activated, then its gate
    bias_pointer,  # [F] or [2 F], or null
    grad_input_pointer,  # like the input
    grad_bias_pointer,  # float32 [programs, F] or [programs, 2 F], or null without a bias
    num_rows,
    WIDTH: tl.constexpr,
    BLOCK_ROWS: tl.constexpr,
    BLOCK_COLUMNS: tl.constexpr,
    HAS_BIAS: tl.constexpr,
    GATED: tl.constexpr,
    ACTIVATION: tl.constexpr,
    NUM_STAGES: tl.constexpr,
):
    columns = tl.program_id(1) * BLOCK_COLUMNS + tl.arange(0, BLOCK_COLUMNS)
    in_row = columns < WIDTH
    bias = tl.zeros([BLOCK_COLUMNS], dtype=tl.float32)
    gate_bias = tl.zeros([BLOCK_COLUMNS], dtype=tl.float32)
    if HAS_BIAS:
        bias = tl.load(bias_pointer + columns, mask=in_row, other=0.0).to(tl.float32)
        if GATED:
            shift = tl.load(bias_pointer + columns + WIDTH, mask=in_row, other=0.0)
            gate_bias = shift.to(tl.float32)
    # Rows are added at the end: a sum over them in the loop would wait for other warps.
    grad_bias = tl.zeros([BLOCK_ROWS, BLOCK_COLUMNS], dtype=tl.float32)
    grad_gate_bias = tl.zeros([BLOCK_ROWS, BLOCK_COLUMNS], dtype=tl.float32)
    step = tl.num_programs(0).to(tl.int64) * BLOCK_ROWS
    first = tl.program_id(0).to(tl.int64) * BLOCK_ROWS
    for start in tl.range(first, num_rows, step, num_stages=NUM_STAGES):
        rows = start + tl.arange(0, BLOCK_ROWS)
        inside = (rows[:, None] < num_rows) & in_row[None, :]
        here = rows[:, None] * WIDTH + columns[None, :]
        places = rows[:, None] * (2 * WIDTH if GATED else WIDTH) + columns[None, :]
        kind = grad_input_pointer.dtype.element_ty
        dy = tl.load(grad_output_pointer + here, mask=inside, other=0.0).to(tl.float32)
        x = tl.load(input_pointer + places, mask=inside, other=0.0).to(tl.float32)
        x += bias[None, :]
        factor = multiplier(x, ACTIVATION)
        if GATED:
            gate = tl.load(input_pointer + places + WIDTH, mask=inside, other=0.0).to(tl.float32)
            gate += gate_bias[None, :]
            dgate = dy * (x * factor)
            dy *= gate
            tl.store(grad_input_pointer + places + WIDTH, dgate.to(kind), mask=inside)
            if HAS_BIAS:
                grad_gate_bias += dgate
        dx = dy * derivative(x, factor, ACTIVATION)
        tl.store(grad_input_pointer + places, dx.to(kind), mask=inside)
        if HAS_BIAS:
            grad_bias += dx
    if HAS_BIAS:
        partial = tl.program_id(0) * (2 * WIDTH if GATED else WIDTH) + columns
        tl.store(grad_bias_pointer + partial, tl.sum(grad_bias, axis=0), mask=in_row)
        if GATED:
            total = tl.sum(grad_gate_bias, axis=0)
            tl.store(grad_bias_pointer + partial + WIDTH, total, mask=in_row)


def backward_block_shape(width: int, *, gated: bool) -> tuple[int, int]:
    """Return (rows, columns) of the block that one program of the kernel computes.

    If gated, a block has half the rows.
    """
    return block_shape(width, elements=BLOCK_ELEMENTS // (2 if gated else 1))


@on_device
def activation_backward(
    grad_output_TF: Tensor, input_TG: Tensor, bias_G: Tensor | None, activation: str, *, gated: bool
) -> tuple[Tensor, Tensor]:
    """Launch the backward kernel on contiguous tensors; G is 2 F if gated, else F.

    Returns the gradients of the input [T, G] and of the bias, float32 [G], empty without a bias.
    """
    num_rows, width = grad_output_TF.shape
    grad_input = torch.empty_like(input_TG)
    block_rows, block_columns = backward_block_shape(width, gated=gated)
    num_blocks = cdiv(width, block_columns)
    most = num_programs(input_TG, PROGRAMS) // max(num_blocks, 1)
    programs = max(1, min(most, cdiv(num_rows, block_rows)))
    shape = (programs, input_TG.shape[1]) if bias_G is not None else (0, 0)
    partials = torch.zeros(shape, dtype=torch.float32, device=input_TG.device)
    if input_TG.numel() > 0:
        _activation_backward_kernel[(programs, num_blocks)](
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
            GATED=gated,
            ACTIVATION=activation,
            NUM_STAGES=NUM_STAGES,
            num_warps=NUM_WARPS,
        )
    return grad_input, partials.sum(dim=0)
