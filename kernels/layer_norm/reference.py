"""Layer normalisation straight from its definition, in float64."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from torch import Tensor


def layer_norm(
    input_TD: Tensor,
    weight_D: Tensor,
    bias_D: Tensor | None,
    *,
    epsilon: float,
    residual_TD: Tensor | None,
    dropout: float,
) -> Tensor:
    """``(x - mean) / sqrt(var + epsilon) * weight + bias``, ``x = dropout(input) + residual``."""
    x = input_TD.double()
    if dropout > 0.0:
        x = torch.dropout(x, dropout, train=True)
    if residual_TD is not None:
        x = x + residual_TD.double()
    centred = x - x.mean(dim=1, keepdim=True)
    variance = (centred * centred).mean(dim=1, keepdim=True)
    output = centred / (variance + epsilon).sqrt() * weight_D.double()
    if bias_D is not None:
        output = output + bias_D.double()
    return output.to(input_TD.dtype)
