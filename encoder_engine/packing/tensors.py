"""Converts arrays and lists to tensors, for code that does not import PyTorch at import time."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import torch

if TYPE_CHECKING:
    from torch import Tensor

__all__ = ["as_tensor"]


def as_tensor(values: Any) -> Tensor:
    """Return an array as a tensor that shares its memory, a list as a new one, a tensor itself."""
    if isinstance(values, list) and values and isinstance(values[0], np.ndarray):
        values = np.array(values)
    if isinstance(values, np.ndarray):
        return torch.from_numpy(values)
    return values if isinstance(values, torch.Tensor) else torch.tensor(values)
