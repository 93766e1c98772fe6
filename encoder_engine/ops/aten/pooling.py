"""Pooling by PyTorch's reductions, sequences of equal length together."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
import torch.nn.functional as F  # noqa: N812

if TYPE_CHECKING:
    from torch import Tensor

    from encoder_engine.packing import Sequences


def pooling(hidden_TD: Tensor, sequences: Sequences, *, mode: str, normalize: bool) -> Tensor:
    """Fulfil ``ops.pooling``."""
    wide = hidden_TD if hidden_TD.dtype == torch.float64 else hidden_TD.float()
    width = wide.shape[1]
    # The sum ties an all-empty batch to the graph; empty sequences keep these zeros.
    pooled = wide.new_zeros(len(sequences), width) + wide[:0].sum()
    for length, members, rows in sequences.length_groups:
        group_nLD = wide[rows].view(-1, length, width)
        pooled = pooled.index_copy(0, members, _reduce(group_nLD, mode))
    if normalize:
        pooled = F.normalize(pooled, dim=-1)
    return pooled.to(hidden_TD.dtype)


def _reduce(group_nLD: Tensor, mode: str) -> Tensor:
    if mode == "cls":
        return group_nLD[:, 0]
    if mode == "lasttoken":
        return group_nLD[:, -1]
    if mode == "max":
        return group_nLD.amax(dim=1)
    length = group_nLD.shape[1]
    if mode == "weightedmean":
        weights = torch.arange(1, length + 1, device=group_nLD.device).to(group_nLD.dtype)
        return (group_nLD * weights[:, None]).sum(dim=1) / (length * (length + 1) / 2)
    summed = group_nLD.sum(dim=1)
    return summed / (length**0.5 if mode == "mean_sqrt_len_tokens" else length)
