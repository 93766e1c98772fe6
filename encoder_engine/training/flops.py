"""The floating-point operations of a training step, from which MFU is computed."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from encoder_engine.models import Encoder

__all__ = ["flops_per_token"]


def flops_per_token(encoders: Sequence[Encoder], length: int) -> float:
    """Return the FLOPs of a token's forward and backward pass (Chowdhery et al. 2022).

    The blocks' matrix products and attention over sequences of ``length`` tokens are counted: the
    forward pass once, the backward pass twice. Heads and embedding tables are not counted. Rows
    that the last block skips are not subtracted.
    """
    total = 0.0
    for encoder in encoders:
        order = encoder.spec.order or range(len(encoder.spec.blocks))
        for index in order:
            attention = encoder.spec.blocks[index].attention
            matrices = sum(p.numel() for p in encoder.blocks[index].parameters() if p.dim() == 2)
            seen = length if attention.window is None else min(length, 2 * attention.window + 1)
            total += 2.0 * matrices + 4.0 * seen * attention.num_heads * attention.head_dim
    return 3.0 * total
