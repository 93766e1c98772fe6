"""Bias and activation of a feed-forward layer by PyTorch's operators."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch.nn.functional as F  # noqa: N812

if TYPE_CHECKING:
    from torch import Tensor


def bias_gelu(input_TF: Tensor, bias_F: Tensor | None, *, approximate: str) -> Tensor:
    """Compute ``ops.bias_gelu`` by PyTorch's operators."""
    return F.gelu(_shifted(input_TF, bias_F), approximate=approximate)


def geglu(input_TG: Tensor, bias_G: Tensor | None, *, approximate: str) -> Tensor:
    """Compute ``ops.geglu`` by PyTorch's operators."""
    x, gate = _shifted(input_TG, bias_G).chunk(2, dim=1)
    return F.gelu(x, approximate=approximate) * gate


def swiglu(input_TG: Tensor, bias_G: Tensor | None) -> Tensor:
    """Compute ``ops.swiglu`` by PyTorch's operators."""
    x, gate = _shifted(input_TG, bias_G).chunk(2, dim=1)
    return F.silu(x) * gate


def _shifted(input_TF: Tensor, bias_F: Tensor | None) -> Tensor:
    # Under autocast a bias may be wider: the sum would be as well.
    return input_TF if bias_F is None else input_TF + bias_F.to(input_TF.dtype)
