"""Layer and RMS normalisation by PyTorch's operators."""

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
    return_sum: bool,
) -> tuple[Tensor, Tensor | None]:
    """Compute ``ops.layer_norm`` by PyTorch's operators."""
    summed_TD = _summed(input_TD, residual_TD, dropout)
    output_TD = F.layer_norm(summed_TD, weight_D.shape, weight_D, bias_D, epsilon)
    # Autocast on a GPU returns float32, whatever the dtype of the residual stream.
    return output_TD.to(summed_TD.dtype), summed_TD if return_sum else None


def rms_norm(
    input_TD: Tensor,
    weight_D: Tensor,
    *,
    epsilon: float,
    residual_TD: Tensor | None,
    dropout: float,
    return_sum: bool,
) -> tuple[Tensor, Tensor | None]:
    """Compute ``ops.rms_norm`` by PyTorch's operators."""
    summed_TD = _summed(input_TD, residual_TD, dropout)
    output_TD = F.rms_norm(summed_TD, weight_D.shape, weight_D, epsilon)
    return output_TD.to(summed_TD.dtype), summed_TD if return_sum else None


def _summed(input_TD: Tensor, residual_TD: Tensor | None, dropout: float) -> Tensor:
    if dropout > 0.0:
        input_TD = F.dropout(input_TD, dropout)
    return input_TD if residual_TD is None else input_TD + residual_TD
