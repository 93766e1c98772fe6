"""Activations that are computed again instead of kept."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from torch.utils.checkpoint import checkpoint

if TYPE_CHECKING:
    from collections.abc import Sequence

    from encoder_engine.models import Encoder

__all__ = ["recompute_blocks"]


def recompute_blocks(encoders: Sequence[Encoder]) -> None:
    """Let each block keep its input alone, and compute the rest again in backward."""
    for encoder in encoders:
        for block in encoder.blocks:
            again = partial(checkpoint, block.forward, use_reentrant=False)
            block.forward = again
