"""Layer and RMS normalisation straight from their definitions, in float64."""

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
    return_sum: bool,
) -> tuple[Tensor, Tensor | None]:
    """Return ``(x - mean) / sqrt(var + eps) * weight + bias``; x: ``dropout(input) + residual``."""
    x = _summed(input_TD, residual_TD, dropout)
    centred = x - x.mean(dim=1, keepdim=True)
    variance = (centred * centred).mean(dim=1, keepdim=True)
    output = centred / (variance + epsilon).sqrt() * weight_D.double()
    if bias_D is not None:
        output = output + bias_D.double()
    dtype = _sum_dtype(input_TD, residual_TD)
    return output.to(dtype), x.to(dtype) if return_sum else None


def rms_norm(
    input_TD: Tensor,
    weight_D: Tensor,
    *,
    epsilon: float,
    residual_TD: Tensor | None,
    dropout: float,
    return_sum: bool,
) -> tuple[Tensor, Tensor | None]:
    """Return ``x / sqrt(mean(x^2) + epsilon) * weight``, ``x = dropout(input) + residual``."""
    x = _summed(input_TD, residual_TD, dropout)
    power = (x * x).mean(dim=1, keepdim=True)
    dtype = _sum_dtype(input_TD, residual_TD)
    output = (x / (power + epsilon).sqrt() * weight_D.double()).to(dtype)
    return output, x.to(dtype) if return_sum else None


def _sum_dtype(input_TD: Tensor, residual_TD: Tensor | None) -> torch.dtype:
    """Return the wider dtype of input and residual: under autocast they differ."""
    if residual_TD is None:
        return input_TD.dtype
    return torch.promote_types(input_TD.dtype, residual_TD.dtype)


def _summed(input_TD: Tensor, residual_TD: Tensor | None, dropout: float) -> Tensor:
    x = input_TD.double()
    if dropout > 0.0:
        x = torch.dropout(x, dropout, train=True)
    return x if residual_TD is None else x + residual_TD.double()
