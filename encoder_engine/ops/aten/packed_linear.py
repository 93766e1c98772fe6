"""The dense layer by oneDNN, its weight reordered once."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from encoder_engine.ops.aten.linear import onednn_linear

if TYPE_CHECKING:
    from torch import Tensor

    from encoder_engine.ops.packed_linear import PackedWeight


def pack(weight_NK: Tensor) -> Tensor:
    """Reorder a weight [N, K] for any number of rows."""
    content: Tensor = torch.ops.mkldnn._reorder_linear_weight(weight_NK.detach(), None)
    return content


def packed_linear(input_TK: Tensor, weight: PackedWeight, *, gelu: str | None) -> Tensor:
    """Fulfil ``ops.packed_linear``."""
    return onednn_linear(input_TK, weight.content, weight.bias_N, gelu=gelu)
