"""The dense layer straight from its definition, in float64."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch import Tensor


def linear(input_TK: Tensor, weight_NK: Tensor, bias_N: Tensor | None) -> Tensor:
    """``input @ weight.T + bias``."""
    output = input_TK.double() @ weight_NK.double().T
    if bias_N is not None:
        output = output + bias_N.double()
    return output.to(input_TK.dtype)
