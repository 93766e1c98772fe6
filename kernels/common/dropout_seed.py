"""Draws the seed of a call's dropout mask."""

from __future__ import annotations

import torch
from torch import Tensor


def draw_seed(like: Tensor) -> Tensor:
    """Return a random seed for a dropout mask, int64 [1], from the generator of ``like``'s device.

    A CUDA graph draws another at each replay.
    """
    return torch.randint(2**62, (1,), dtype=torch.int64, device=like.device)
