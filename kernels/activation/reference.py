"""GELU straight from its definition, in float64."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from torch import Tensor


def bias_gelu(input_TF: Tensor, bias_F: Tensor | None, *, approximate: str) -> Tensor:
    """``x * Phi(x)`` with ``x = input + bias``; ``tanh``: the paper's approximation of Phi."""
    x = input_TF.double()
    if bias_F is not None:
        x = x + bias_F.double()
    if approximate == "tanh":
        phi = 0.5 * (1.0 + torch.tanh(math.sqrt(2.0 / math.pi) * (x + 0.044715 * x**3)))
    else:
        phi = 0.5 * torch.special.erfc(-x / math.sqrt(2.0))
    return (x * phi).to(input_TF.dtype)
