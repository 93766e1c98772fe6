"""GELU and the gated activations straight from their definitions, in float64."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from torch import Tensor


def bias_gelu(input_TF: Tensor, bias_F: Tensor | None, *, approximate: str) -> Tensor:
    """Return ``x * Phi(x)``, ``x = input + bias``; ``"tanh"``: Phi by its tanh approximation."""
    return _gelu(_shifted(input_TF, bias_F), approximate).to(input_TF.dtype)


def geglu(input_TG: Tensor, bias_G: Tensor | None, *, approximate: str) -> Tensor:
    """Return ``gelu(x[:F]) * x[F:]``, ``x = input + bias`` with 2 F features."""
    x, gate = _shifted(input_TG, bias_G).chunk(2, dim=1)
    return (_gelu(x, approximate) * gate).to(input_TG.dtype)


def swiglu(input_TG: Tensor, bias_G: Tensor | None) -> Tensor:
    """Return ``x[:F] / (1 + exp(-x[:F])) * x[F:]``, ``x = input + bias`` with 2 F features."""
    x, gate = _shifted(input_TG, bias_G).chunk(2, dim=1)
    return (x / (1.0 + torch.exp(-x)) * gate).to(input_TG.dtype)


def _shifted(input_TF: Tensor, bias_F: Tensor | None) -> Tensor:
    return input_TF.double() if bias_F is None else input_TF.double() + bias_F.double()


def _gelu(x: Tensor, approximate: str) -> Tensor:
    if approximate == "tanh":
        phi = 0.5 * (1.0 + torch.tanh(math.sqrt(2.0 / math.pi) * (x + 0.044715 * x**3)))
    else:
        phi = 0.5 * torch.special.erfc(-x / math.sqrt(2.0))
    return x * phi
