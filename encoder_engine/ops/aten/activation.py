"""Bias and GELU by PyTorch."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch.nn.functional as F  # noqa: N812

if TYPE_CHECKING:
    from torch import Tensor


def bias_gelu(input_TF: Tensor, bias_F: Tensor | None, *, approximate: str) -> Tensor:
    """Fulfil ``ops.bias_gelu``."""
    return F.gelu(input_TF if bias_F is None else input_TF + bias_F, approximate=approximate)
