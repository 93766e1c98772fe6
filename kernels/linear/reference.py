"""The dense layer, plain and quantized, straight from its definition, in float64."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..activation.reference import bias_gelu
from ..quantize.reference import quantize_rows

if TYPE_CHECKING:
    import torch
    from torch import Tensor


def linear(input_TK: Tensor, weight_NK: Tensor, bias_N: Tensor | None) -> Tensor:
    """Return ``input @ weight.T + bias``."""
    output = input_TK.double() @ weight_NK.double().T
    if bias_N is not None:
        output = output + bias_N.double()
    return output.to(input_TK.dtype)


def quantized_linear(
    input_TK: Tensor, scale_T: Tensor, weight: Any, *, dtype: torch.dtype, gelu: str | None
) -> Tensor:
    """Return ``((input - 128) * scale) @ (weight * its scale).T + bias``, or GELU of it."""
    rows_TK = (input_TK.double() - 128.0) * scale_T.double()[:, None]
    weight_NK = weight.unpack().double() * weight.scale_N.double()[:, None]
    bias_N = None if weight.bias_N is None else weight.bias_N.double()
    output = linear(rows_TK, weight_NK, bias_N)
    if gelu is not None:
        output = bias_gelu(output, None, approximate=gelu)
    return output.to(dtype)


def requantized_linear(
    input_TK: Tensor, scale_T: Tensor, weight: Any, *, gelu: str | None
) -> tuple[Tensor, Tensor]:
    """Return :func:`quantized_linear`'s result quantized by rows: bytes, and a scale per row."""
    output_TN = quantized_linear(input_TK, scale_T, weight, dtype=scale_T.dtype, gelu=gelu)
    return quantize_rows(output_TN)
