"""Pools token vectors into text vectors: concatenated modes, optionally without the prompt."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from encoder_engine import ops
from encoder_engine.packing import Sequences

if TYPE_CHECKING:
    from torch import Tensor

    from encoder_engine.ops.pooling import PoolingMode


def pool(
    hidden_TD: Tensor,
    sequences: Sequences,
    modes: tuple[PoolingMode, ...],
    *,
    num_prompt_tokens: int = 0,
    normalized: bool = False,
) -> Tensor:
    """Pool each sequence by every mode and concatenate the results: float32 [B, D * len(modes)].

    hidden_TD: [T, D].
    num_prompt_tokens: leading rows of each sequence to leave out; every sequence must have more.
        ``weightedmean`` still counts positions from the start, as sentence-transformers does.
    normalized: divide by the Euclidean norm; see :func:`normalize`.
    """
    hidden_TD = hidden_TD.float()
    if len(modes) == 1 and not num_prompt_tokens:
        return ops.pooling(hidden_TD, sequences, mode=modes[0], normalize=normalized)
    if num_prompt_tokens:
        lengths = sequences.lengths - num_prompt_tokens
        assert (lengths > 0).all(), "a sequence is nothing but its prompt"
        kept = sequences.positions >= num_prompt_tokens
        hidden_TD = hidden_TD[kept]
        sequences = Sequences.from_lengths(lengths.tolist(), device=hidden_TD.device)
    parts = [ops.pooling(hidden_TD, sequences, mode=mode) for mode in modes]
    if num_prompt_tokens and "weightedmean" in modes:
        mean_BD = ops.pooling(hidden_TD, sequences, mode="mean")
        for index, mode in enumerate(modes):
            if mode == "weightedmean":
                parts[index] = _moved_weights(parts[index], mean_BD, sequences, num_prompt_tokens)
    pooled_BD = torch.cat(parts, dim=-1)
    return normalize(pooled_BD) if normalized else pooled_BD


def _moved_weights(
    weighted_BD: Tensor, mean_BD: Tensor, sequences: Sequences, shift: int
) -> Tensor:
    """Return the weighted mean with weights 1 + shift, .. n + shift instead of 1, .. n.

    ``sum((i + shift) x_i) = S * weighted + shift * n * mean`` with ``S = n (n + 1) / 2``.
    """
    lengths = torch.from_numpy(sequences.lengths).to(mean_BD)[:, None]
    total = lengths * (lengths + 1) / 2
    moved = shift * lengths
    return (weighted_BD * total + mean_BD * moved) / (total + moved)


def normalize(vectors_BD: Tensor) -> Tensor:
    """Divide each row by its Euclidean norm, at least 1e-12: ``F.normalize(vectors, dim=-1)``."""
    return torch.nn.functional.normalize(vectors_BD, dim=-1)
