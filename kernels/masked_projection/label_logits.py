"""The logit of each row's label: one dot product per row, apart from the GEMM over all tokens.

Selecting it among all logits took three instructions per logit; this reads 4 E bytes per row.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
import triton
import triton.language as tl

from ..common.launch import cdiv, on_device, row_tile

if TYPE_CHECKING:
    from torch import Tensor

    from .terms import Given


@triton.jit
def _label_logits_kernel(
    hidden_pointer,  # [M, E]
    weight_pointer,  # [V, E]
    bias_pointer,  # [V] or null
    labels_pointer,  # int64 [M]
    label_logit_pointer,  # float32 [M]
    num_rows,
    vocab_size,
    WIDTH: tl.constexpr,
    BLOCK_WIDTH: tl.constexpr,
    BLOCK_ROWS: tl.constexpr,
    HAS_BIAS: tl.constexpr,
):
    rows = tl.program_id(0).to(tl.int64) * BLOCK_ROWS + tl.arange(0, BLOCK_ROWS)
    features = tl.arange(0, BLOCK_WIDTH)
    labels = tl.load(labels_pointer + rows, mask=rows < num_rows, other=-1)
    # A label outside the vocabulary makes the loss NaN.
    known = (labels >= 0) & (labels < vocab_size)
    inside = known[:, None] & (features < WIDTH)[None, :]
    hidden_places = rows[:, None] * WIDTH + features[None, :]
    weight_places = labels[:, None] * WIDTH + features[None, :]
    hidden = tl.load(hidden_pointer + hidden_places, mask=inside, other=0.0).to(tl.float32)
    weight = tl.load(weight_pointer + weight_places, mask=inside, other=0.0).to(tl.float32)
    logit = tl.sum(hidden * weight, axis=1)
    if HAS_BIAS:
        logit += tl.load(bias_pointer + labels, mask=known, other=0.0).to(tl.float32)
    logit = tl.where(known, logit, float("nan"))
    tl.store(label_logit_pointer + rows, logit, mask=rows < num_rows)


@on_device
def label_logits(given: Given) -> Tensor:
    """Return each row's logit of its label, float32 [M]; NaN for a label outside the vocabulary."""
    hidden_ME, weight_VE, bias_V, labels_M = given
    num_rows, width = hidden_ME.shape
    logits = torch.empty(num_rows, dtype=torch.float32, device=hidden_ME.device)
    if num_rows > 0:
        tile = row_tile(width)
        _label_logits_kernel[(cdiv(num_rows, tile.rows),)](
            hidden_ME,
            weight_VE,
            bias_V,
            labels_M,
            logits,
            num_rows,
            len(weight_VE),
            WIDTH=width,
            BLOCK_WIDTH=tile.width,
            BLOCK_ROWS=tile.rows,
            HAS_BIAS=bias_V is not None,
            num_warps=tile.num_warps,
        )
    return logits
