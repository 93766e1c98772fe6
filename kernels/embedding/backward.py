"""The backward kernel of the norm over the embeddings' sum: one pass, no atomics."""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from ..common.dropout import keep_scale
from ..common.launch import cdiv, num_programs, on_device, row_tile
from .forward import Given, load_sum


@triton.jit
def _embedding_backward_kernel(
    grad_output_pointer,  # [T, E]
    tokens_pointer,  # int [T]
    places_pointer,  # int [T] or null
    segments_pointer,  # int [T] or null
    token_table_pointer,  # [V, E]
    position_table_pointer,  # [P, E] or null
    segment_table_pointer,  # [S, E] or null
    weight_pointer,  # [E]
    mean_pointer,  # float32 [T]
    rstd_pointer,  # float32 [T]
    seed_pointer,  # int64 [1] or null
    grad_sum_pointer,  # [T, E] the gradient of the three tables' sum
    grad_weight_pointer,  # float32 [programs, E]
    grad_bias_pointer,  # float32 [programs, E]
    num_rows,
    dropout,
    WIDTH: tl.constexpr,
    BLOCK_WIDTH: tl.constexpr,
    BLOCK_ROWS: tl.constexpr,
    HAS_POSITIONS: tl.constexpr,
    HAS_SEGMENTS: tl.constexpr,
    SEGMENTS_GIVEN: tl.constexpr,
    HAS_DROPOUT: tl.constexpr,
):
    columns = tl.arange(0, BLOCK_WIDTH)
    in_row = columns < WIDTH
    weight = tl.load(weight_pointer + columns, mask=in_row, other=0.0).to(tl.float32)
    grad_weight = tl.zeros([BLOCK_WIDTH], dtype=tl.float32)
    grad_bias = tl.zeros([BLOCK_WIDTH], dtype=tl.float32)
    step = tl.num_programs(0).to(tl.int64) * BLOCK_ROWS
    first = tl.program_id(0).to(tl.int64) * BLOCK_ROWS
    for start in range(first, num_rows, step):
        rows = start + tl.arange(0, BLOCK_ROWS)
        here = rows < num_rows
        inside = here[:, None] & in_row[None, :]
        places = rows[:, None] * WIDTH + columns[None, :]
        dy = tl.load(grad_output_pointer + places, mask=inside, other=0.0).to(tl.float32)
        if HAS_DROPOUT:
            dy *= keep_scale(tl.load(seed_pointer), rows, columns, dropout)
        x = load_sum(
            tokens_pointer, places_pointer, segments_pointer,
            token_table_pointer, position_table_pointer, segment_table_pointer,
            rows, columns, here, inside, WIDTH, HAS_POSITIONS, HAS_SEGMENTS, SEGMENTS_GIVEN,
        )  # fmt: skip
        mean = tl.load(mean_pointer + rows, mask=here, other=0.0)
        rstd = tl.load(rstd_pointer + rows, mask=here, other=0.0)
        normal = tl.where(inside, (x - mean[:, None]) * rstd[:, None], 0.0)
        grad_weight += tl.sum(dy * normal, axis=0)
        grad_bias += tl.sum(dy, axis=0)
        scaled = dy * weight[None, :]
        along = tl.sum(scaled * normal, axis=1) / WIDTH
        level = tl.sum(scaled, axis=1) / WIDTH
        dx = (scaled - level[:, None] - normal * along[:, None]) * rstd[:, None]
        dx = tl.where(inside, dx, 0.0)
        tl.store(grad_sum_pointer + places, dx.to(grad_sum_pointer.dtype.element_ty), mask=inside)
    partial = tl.program_id(0) * WIDTH + columns
    tl.store(grad_weight_pointer + partial, grad_weight, mask=in_row)
    tl.store(grad_bias_pointer + partial, grad_bias, mask=in_row)


@on_device
def embedding_backward(
    grad_output_TE: Tensor,
    given: Given,
    mean_T: Tensor,
    rstd_T: Tensor,
    seed: Tensor | None,
    dropout: float,
) -> tuple[Tensor, Tensor, Tensor]:
    """Launch the backward kernel on contiguous tensors.

    Returns the gradients of the sum of the tables' rows [T, E], and of the norm's weight and bias,
    float32 [E].
    """
    num_rows, width = grad_output_TE.shape
    grad_sum = torch.empty_like(grad_output_TE)
    tile = row_tile(width, most_elements=4096)
    programs = max(1, min(num_programs(grad_output_TE), cdiv(num_rows, tile.rows)))
    partials = torch.empty(2, programs, width, dtype=torch.float32, device=grad_sum.device)
    _embedding_backward_kernel[(programs,)](
        grad_output_TE,
        *given,
        mean_T,
        rstd_T,
        seed,
        grad_sum,
        partials[0],
        partials[1],
        num_rows,
        dropout,
        **given.constants(tile, seed),
    )
    return grad_sum, partials[0].sum(dim=0), partials[1].sum(dim=0)
