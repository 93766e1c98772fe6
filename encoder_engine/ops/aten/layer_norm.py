"""Layer normalisation by PyTorch."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch.nn.functional as F  # noqa: N812

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
    """Fulfil ``ops.layer_norm``."""
    if dropout > 0.0:
        input_TD = F.dropout(input_TD, dropout)
    if residual_TD is not None:
        input_TD = input_TD + residual_TD
    return F.layer_norm(input_TD, weight_D.shape, weight_D, bias_D, epsilon)
