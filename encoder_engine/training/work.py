"""How many operations a model's training takes, and which share of a machine's that is."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from encoder_engine.models import Encoder

__all__ = ["operations_per_token"]


def operations_per_token(encoders: Sequence[Encoder], length: int) -> float:
    """Count additions and multiplications of a token's forward and backward pass.

    Those of the blocks' matrices and of attention over sequences of ``length`` tokens, forward once
    and backward twice as many (Chowdhery et al. 2022); heads and tables are not counted, nor what
    is left out of the last block taken off.
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
