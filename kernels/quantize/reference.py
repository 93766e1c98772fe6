"""Quantization of rows straight from its definition, in float64."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from ..layer_norm.reference import layer_norm

if TYPE_CHECKING:
    from torch import Tensor


def quantize_rows(input_TD: Tensor) -> tuple[Tensor, Tensor]:
    """Return ``round(input / scale) + 128`` and ``scale = max |input| / 127`` of each row."""
    wide_TD = input_TD.double()
    largest_T = wide_TD.abs().amax(dim=1) if wide_TD.shape[1] else wide_TD.new_zeros(len(wide_TD))
    scale_T = torch.where(largest_T < 2.0**-100, 1.0, largest_T / 127)
    scale_T = torch.where(largest_T.isfinite(), scale_T, torch.nan)
    steps_TD = torch.nan_to_num(wide_TD / scale_T[:, None]).round() + 128
    return steps_TD.to(torch.uint8), scale_T.float()


def layer_norm_quantized(
    input_TD: Tensor,
    weight_D: Tensor,
    bias_D: Tensor | None,
    *,
    epsilon: float,
    residual_TD: Tensor | None,
) -> tuple[Tensor, Tensor, Tensor]:
    """Return the layer norm in the input's dtype, and the quantized norm: bytes, scales.

    The norm is quantized in float64, before it is rounded to the input's dtype.
    """
    output_TD, _ = layer_norm(
        input_TD.double(),
        weight_D,
        bias_D,
        epsilon=epsilon,
        residual_TD=residual_TD,
        dropout=0.0,
        return_sum=False,
    )
    return output_TD.to(input_TD.dtype), *quantize_rows(output_TD)
