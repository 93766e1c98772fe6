"""Look-up, sum, layer norm and dropout in one pass over the rows: the forward kernel."""

from __future__ import annotations

from typing import NamedTuple

import torch
import triton
import triton.language as tl
from torch import Tensor

from ..common.dropout import keep_scale
from ..common.launch import RowTile, cdiv, on_device, row_tile
from ..common.layout import contiguous


@triton.jit
def load_rows(table_pointer, ids_pointer, rows, columns, here, inside, WIDTH: tl.constexpr):
    """Load, in float32, the embedding of the id of each of ``rows`` from a table."""
    ids = tl.load(ids_pointer + rows, mask=here, other=0).to(tl.int64)
    places = ids[:, None] * WIDTH + columns[None, :]
    return tl.load(table_pointer + places, mask=inside, other=0.0).to(tl.float32)


@triton.jit
def load_sum(
    tokens_pointer, places_pointer, segments_pointer,
    token_table_pointer, position_table_pointer, segment_table_pointer,
    rows, columns, here, inside,
    WIDTH: tl.constexpr, HAS_POSITIONS: tl.constexpr, HAS_SEGMENTS: tl.constexpr,
    SEGMENTS_GIVEN: tl.constexpr,
):  # fmt: skip
    """Return the sum of token, position and segment embeddings; backward recomputes it."""
    x = load_rows(token_table_pointer, tokens_pointer, rows, columns, here, inside, WIDTH)
    if HAS_POSITIONS:
        x += load_rows(position_table_pointer, places_pointer, rows, columns, here, inside, WIDTH)
    if SEGMENTS_GIVEN:
        x += load_rows(segment_table_pointer, segments_pointer, rows, columns, here, inside, WIDTH)
    elif HAS_SEGMENTS:
        first = tl.load(segment_table_pointer + columns, mask=columns < WIDTH, other=0.0)
        x += tl.where(inside, first.to(tl.float32)[None, :], 0.0)
    return x


@triton.jit
def _embedding_forward_kernel(
    tokens_pointer,  # int [T]
    places_pointer,  # int [T] or null
    segments_pointer,  # int [T], or null: segment 0 throughout
    token_table_pointer,  # [V, E]
    position_table_pointer,  # [P, E] or null
    segment_table_pointer,  # [S, E] or null
    weight_pointer,  # [E]
    bias_pointer,  # [E] or null
    seed_pointer,  # int64 [1] or null
    output_pointer,  # [T, E]
    mean_pointer,  # float32 [T]
    rstd_pointer,  # float32 [T]
    num_rows,
    epsilon,
    dropout,
    WIDTH: tl.constexpr,
    BLOCK_WIDTH: tl.constexpr,
    BLOCK_ROWS: tl.constexpr,
    HAS_POSITIONS: tl.constexpr,
    HAS_SEGMENTS: tl.constexpr,
    SEGMENTS_GIVEN: tl.constexpr,
    HAS_DROPOUT: tl.constexpr,
    HAS_BIAS: tl.constexpr,
):
    rows = tl.program_id(0).to(tl.int64) * BLOCK_ROWS + tl.arange(0, BLOCK_ROWS)
    columns = tl.arange(0, BLOCK_WIDTH)
    here, in_row = rows < num_rows, columns < WIDTH
    inside = here[:, None] & in_row[None, :]
    x = load_sum(
        tokens_pointer, places_pointer, segments_pointer,
        token_table_pointer, position_table_pointer, segment_table_pointer,
        rows, columns, here, inside, WIDTH, HAS_POSITIONS, HAS_SEGMENTS, SEGMENTS_GIVEN,
    )  # fmt: skip
    mean = tl.sum(x, axis=1) / WIDTH
    centred = tl.where(inside, x - mean[:, None], 0.0)
    rstd = 1.0 / tl.sqrt_rn(tl.sum(centred * centred, axis=1) / WIDTH + epsilon)
    weight = tl.load(weight_pointer + columns, mask=in_row, other=0.0).to(tl.float32)
    y = centred * rstd[:, None] * weight[None, :]
    if HAS_BIAS:
        bias = tl.load(bias_pointer + columns, mask=in_row, other=0.0).to(tl.float32)
        y += bias[None, :]
    if HAS_DROPOUT:
        y *= keep_scale(tl.load(seed_pointer), rows, columns, dropout)
    places = rows[:, None] * WIDTH + columns[None, :]
    tl.store(output_pointer + places, y.to(output_pointer.dtype.element_ty), mask=inside)
    tl.store(mean_pointer + rows, mean, mask=here)
    tl.store(rstd_pointer + rows, rstd, mask=here)


class Given(NamedTuple):
    """The inputs of the embedding layer for the forward and backward kernels, in their order."""

    tokens_T: Tensor
    places_T: Tensor | None
    segments_T: Tensor | None
    token_table_VE: Tensor
    position_table_PE: Tensor | None
    segment_table_SE: Tensor | None
    weight_E: Tensor

    def contiguous(self) -> Given:
        """Return the inputs with each tensor contiguous."""
        return Given._make(contiguous(x) for x in self)

    def constants(self, tile: RowTile, seed: Tensor | None) -> dict[str, int]:
        """Return a kernel's compile-time constants and launch options."""
        has_segments = self.segment_table_SE is not None
        return {
            "WIDTH": self.token_table_VE.shape[1],
            "BLOCK_WIDTH": tile.width,
            "BLOCK_ROWS": tile.rows,
            "HAS_POSITIONS": self.position_table_PE is not None,
            "HAS_SEGMENTS": has_segments,
            "SEGMENTS_GIVEN": has_segments and self.segments_T is not None,
            "HAS_DROPOUT": seed is not None,
            "num_warps": tile.num_warps,
        }


@on_device
def embedding_forward(
    given: Given, bias_E: Tensor | None, seed: Tensor | None, epsilon: float, dropout: float
) -> tuple[Tensor, Tensor, Tensor]:
    """Launch the forward kernel on contiguous tensors.

    Returns the output [T, E] and each row's mean and reciprocal standard deviation, float32 [T].
    """
    num_rows, width = len(given.tokens_T), given.token_table_VE.shape[1]
    output = given.token_table_VE.new_empty(num_rows, width)
    mean = torch.empty(num_rows, dtype=torch.float32, device=output.device)
    rstd = torch.empty_like(mean)
    if num_rows == 0:
        return output, mean, rstd
    tile = row_tile(width)
    _embedding_forward_kernel[(cdiv(num_rows, tile.rows),)](
        *given,
        bias_E,
        seed,
        output,
        mean,
        rstd,
        num_rows,
        epsilon,
        dropout,
        HAS_BIAS=bias_E is not None,
        **given.constants(tile, seed),
    )
    return output, mean, rstd
