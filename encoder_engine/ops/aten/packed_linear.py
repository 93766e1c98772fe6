"""The dense layer by oneDNN, its weight reordered once."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from torch import Tensor

    from encoder_engine.ops.packed_linear import PackedWeight


def pack(weight_NK: Tensor) -> Tensor:
    """Reorder a weight [N, K] for any number of rows."""
    content: Tensor = torch.ops.mkldnn._reorder_linear_weight(weight_NK.detach(), None)
    return content


def packed_linear(input_TK: Tensor, weight: PackedWeight, *, gelu: str | None) -> Tensor:
    """Fulfil ``ops.packed_linear``."""
    num_rows = len(input_TK)
    if num_rows == 0:
        return input_TK.new_empty(0, weight.shape[0])
    # One row alone is a matrix-vector product, summed in another order: it comes twice.
    rows = input_TK.expand(2, -1) if num_rows == 1 else input_TK
    post = "none" if gelu is None else "gelu"
    output: Tensor = torch.ops.mkldnn._linear_pointwise(
        rows, weight.content, weight.bias_N, post, [], gelu or ""
    )
    return output[:num_rows]
