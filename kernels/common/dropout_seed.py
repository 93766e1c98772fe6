"""The seed that a call's dropout mask is a function of."""

from __future__ import annotations

import torch
from torch import Tensor


def draw_seed(like: Tensor) -> Tensor:
    """Draw an int64 [1] from the device's generator; a captured CUDA graph draws anew each time."""
    return torch.randint(2**62, (1,), dtype=torch.int64, device=like.device)
