"""Quantization of rows to bytes by PyTorch's operators."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
import torch.nn.functional as F  # noqa: N812

if TYPE_CHECKING:
    from torch import Tensor


def quantize_rows(input_TD: Tensor) -> tuple[Tensor, Tensor]:
    """Compute ``ops.quantize_rows`` by PyTorch's operators."""
    wide_TD = input_TD.float()
    scale_T = row_scales(wide_TD)
    steps_TD = torch.nan_to_num(wide_TD * scale_T.reciprocal()[:, None]).round_() + 128
    return steps_TD.to(torch.uint8), scale_T


def row_scales(wide_TD: Tensor) -> Tensor:
    """Return each row's scale, as ``ops.quantize_rows`` defines it."""
    largest_T = wide_TD.abs().amax(dim=1) if wide_TD.shape[1] else wide_TD.new_zeros(len(wide_TD))
    scale_T = torch.where(largest_T < 2.0**-100, 1.0, largest_T / 127)
    return torch.where(largest_T.isfinite(), scale_T, torch.nan)


def layer_norm_quantized(
    input_TD: Tensor,
    weight_D: Tensor,
    bias_D: Tensor | None,
    *,
    epsilon: float,
    residual_TD: Tensor | None,
) -> tuple[Tensor, Tensor, Tensor]:
    """Compute ``ops.layer_norm_quantized`` by PyTorch's operators."""
    wide = torch.promote_types(input_TD.dtype, torch.float32)
    wide_TD = input_TD.to(wide)
    if residual_TD is not None:
        wide_TD = wide_TD + residual_TD.to(wide)
    bias = None if bias_D is None else bias_D.to(wide)
    output_TD = F.layer_norm(wide_TD, weight_D.shape, weight_D.to(wide), bias, epsilon)
    return output_TD.to(input_TD.dtype), *quantize_rows(output_TD)
