"""SPLADE vectors from logits (Formal et al. 2021), and the FLOPS penalty on them.

N texts, V vocabulary, T tokens.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from encoder_engine import ops

if TYPE_CHECKING:
    from torch import Tensor

    from encoder_engine.packing import Sequences

__all__ = ["flops", "splade_vectors"]


def splade_vectors(logits_TV: Tensor, sequences: Sequences) -> Tensor:
    """Return ``max_t log(1 + relu(logits))`` of each text, [N, V].

    The function is monotone: the maximum is taken first, of T x V logits, and T / N times fewer
    logarithms are computed.
    """
    return torch.log1p(torch.relu(ops.pooling(logits_TV, sequences, mode="max")))


def flops(weights_NV: Tensor, *, threshold: int | None = None) -> Tensor:
    """Return ``(weights.mean(0) ** 2).sum()`` times N: the FLOPS penalty (Paria et al. 2020).

    ``threshold``: texts with at most that many weights above 0 count as empty.
    """
    if threshold is not None:
        counted_N = (weights_NV != 0).sum(1) > threshold
        weights_NV = weights_NV * counted_N[:, None]
    return len(weights_NV) * weights_NV.mean(0).square().sum()
