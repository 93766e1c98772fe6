"""Activation checkpointing: activations recomputed in backward instead of stored."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from torch.utils.checkpoint import checkpoint

if TYPE_CHECKING:
    from collections.abc import Sequence

    from encoder_engine.models import Encoder

__all__ = ["recompute_blocks"]


def recompute_blocks(encoders: Sequence[Encoder]) -> None:
    """Make each block store only its input, and recompute the rest in backward."""
    for encoder in encoders:
        for block in encoder.blocks:
            recomputed = partial(checkpoint, block.forward, use_reentrant=False)
            block.forward = recomputed
