"""Pooling, one sequence at a time, in float64."""

from __future__ import annotations

import math
from itertools import pairwise
from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from torch import Tensor

    from ..common.layout import Layout


def pooling(hidden_TD: Tensor, sequences: Layout, *, mode: str, normalize: bool) -> Tensor:
    """Return the rows of each sequence reduced by ``mode``; zeros for an empty sequence."""
    rows = []
    bounds = sequences.offsets.tolist()
    for start, stop in pairwise(bounds):
        pooled = _pool(hidden_TD[start:stop].double(), mode)
        if normalize:
            pooled = pooled / pooled.norm().clamp(min=1e-12)
        rows.append(pooled)
    joined = torch.stack(rows) if rows else hidden_TD.double()[:0]
    return joined.to(hidden_TD.dtype)


def _pool(hidden_LD: Tensor, mode: str) -> Tensor:
    length = len(hidden_LD)
    if length == 0:
        return hidden_LD.sum(dim=0)
    if mode == "cls":
        return hidden_LD[0]
    if mode == "lasttoken":
        return hidden_LD[-1]
    if mode == "max":
        return hidden_LD.amax(dim=0)
    if mode == "mean_sqrt_len_tokens":
        return hidden_LD.sum(dim=0) / math.sqrt(length)
    if mode == "weightedmean":
        weights = torch.arange(1, length + 1, dtype=torch.float64, device=hidden_LD.device)
        shares = weights / weights.sum()
        mixed: Tensor = shares @ hidden_LD
        return mixed
    return hidden_LD.mean(dim=0)
