"""The backward kernel of the tiled projection: recomputes logits, and writes their gradient."""

from __future__ import annotations

from typing import TYPE_CHECKING

import triton
import triton.language as tl

from ..common.launch import cdiv, on_device
from .config import PART_COLUMNS, gradient_launch, whole_vectors
from .tile import logits_gradient, logits_tile

if TYPE_CHECKING:
    from collections.abc import Iterator

    from torch import Tensor

    from .terms import Given, Terms


@triton.jit
def _tiled_gradient_kernel(
    hidden_pointer,  # [M, E]
    weight_pointer,  # [V, E]
    bias_pointer,  # [V] or null
    labels_pointer,  # int64 [M]
    lse_pointer,  # float32 [M]
    grad_logits_pointer,  # [M, C]: the columns from first_column on
    row_stride,
    num_rows,
    vocab_size,
    first_column,
    width,
    label_smoothing,
    z_loss,
    WIDTH: tl.constexpr,
    BLOCK_ROWS: tl.constexpr,
    BLOCK_COLUMNS: tl.constexpr,
    BLOCK_WIDTH: tl.constexpr,
    HAS_BIAS: tl.constexpr,
    PRECISION: tl.constexpr,
):
    rows = tl.program_id(0) * BLOCK_ROWS + tl.arange(0, BLOCK_ROWS)
    within = tl.program_id(1) * BLOCK_COLUMNS + tl.arange(0, BLOCK_COLUMNS)
    columns = first_column + within
    x = logits_tile(
        hidden_pointer, weight_pointer, bias_pointer, rows, columns, num_rows, vocab_size,
        width, WIDTH, BLOCK_ROWS, BLOCK_COLUMNS, BLOCK_WIDTH, HAS_BIAS, PRECISION,
    )  # fmt: skip
    in_batch = rows < num_rows
    labels = tl.load(labels_pointer + rows, mask=in_batch, other=-1)
    lse = tl.load(lse_pointer + rows, mask=in_batch, other=0.0)
    # Compared in 32 bits, which take half the registers; a label that is no token hits no column.
    known = (labels >= 0) & (labels < vocab_size)
    hits = columns[None, :] == tl.where(known, labels, -1).to(tl.int32)[:, None]
    grad = logits_gradient(x, lse[:, None], hits, vocab_size, label_smoothing, z_loss)
    places = rows.to(tl.int64)[:, None] * row_stride + within[None, :]
    # The last part ends with the vocabulary; the others end with a whole block.
    inside = in_batch[:, None] & (columns < vocab_size)[None, :]
    kind = grad_logits_pointer.dtype.element_ty
    tl.store(grad_logits_pointer + places, grad.to(kind), mask=inside)


def tiled_gradients(given: Given, lse_M: Tensor, terms: Terms) -> Iterator[tuple[int, Tensor]]:
    """Yield the logits' gradient in parts: (first column, [M, C]), all in the same buffer."""
    num_rows, vocab_size = len(given.hidden_ME), len(given.weight_VE)
    buffer = given.hidden_ME.new_empty(num_rows, PART_COLUMNS)
    for start in range(0, vocab_size, PART_COLUMNS):
        part = buffer[:, : min(PART_COLUMNS, vocab_size - start)]
        if num_rows > 0:
            _write_gradient(part, given, lse_M, terms, start)
        for columns in whole_vectors(part.shape[1], part.element_size()):
            yield start + columns.start, part[:, columns]


@on_device
def _write_gradient(grad_MC: Tensor, given: Given, lse_M: Tensor, terms: Terms, start: int) -> None:
    """Launch the kernel that writes the logits' gradient from column ``start`` on."""
    hidden_ME, weight_VE, bias_V, labels_M = given
    (num_rows, num_columns), width = grad_MC.shape, hidden_ME.shape[1]
    launch = gradient_launch(hidden_ME.element_size())
    grid = (
        cdiv(num_rows, launch.block_rows),
        cdiv(num_columns, launch.block_columns),
    )
    _tiled_gradient_kernel[grid](
        hidden_ME,
        weight_VE,
        bias_V,
        labels_M,
        lse_M,
        grad_MC,
        grad_MC.stride(0),
        num_rows,
        len(weight_VE),
        start,
        width,
        terms.label_smoothing,
        terms.z_loss,
        WIDTH=width,
        BLOCK_ROWS=launch.block_rows,
        BLOCK_COLUMNS=launch.block_columns,
        BLOCK_WIDTH=launch.block_width,
        HAS_BIAS=bias_V is not None,
        PRECISION="ieee",
        num_warps=launch.num_warps,
        num_stages=launch.num_stages,
    )
