"""The dense layer straight from its definition, in float64."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..activation.reference import bias_gelu

if TYPE_CHECKING:
    from torch import Tensor


def linear(input_TK: Tensor, weight_NK: Tensor, bias_N: Tensor | None) -> Tensor:
    """``input @ weight.T + bias``."""
    output = input_TK.double() @ weight_NK.double().T
    if bias_N is not None:
        output = output + bias_N.double()
    return output.to(input_TK.dtype)


def packed_linear(input_TK: Tensor, weight: Any, *, gelu: str | None) -> Tensor:
    """``gelu(input @ weight.T + bias)``."""
    bias_N = None if weight.bias_N is None else weight.bias_N.double()
    output = linear(input_TK.double(), weight.unpack(), bias_N)
    if gelu is not None:
        output = bias_gelu(output, None, approximate=gelu)
    return output.to(input_TK.dtype)
