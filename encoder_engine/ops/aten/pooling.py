"""Pooling by PyTorch's segment reductions."""

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
    pooled = _pool(wide, sequences, mode)
    if normalize:
        pooled = F.normalize(pooled, dim=-1)
    return pooled.to(hidden_TD.dtype)


def _pool(hidden_TD: Tensor, sequences: Sequences, mode: str) -> Tensor:
    lengths = torch.from_numpy(sequences.lengths).to(hidden_TD.device)
    if mode in ("cls", "lasttoken"):
        return _pick(hidden_TD, sequences, lengths, last=mode == "lasttoken")
    if mode == "max":
        pooled = torch.segment_reduce(hidden_TD, "max", lengths=lengths, unsafe=True)
        return torch.where(lengths[:, None] > 0, pooled, torch.zeros_like(pooled))
    counts = lengths.to(hidden_TD.dtype)
    if mode == "weightedmean":
        weights = (sequences.positions + 1).to(hidden_TD.dtype)
        hidden_TD = hidden_TD * weights[:, None]
        counts = counts * (counts + 1) / 2
    elif mode == "mean_sqrt_len_tokens":
        counts = counts.sqrt()
    summed = torch.segment_reduce(hidden_TD, "sum", lengths=lengths, unsafe=True)
    return summed / counts.clamp(min=1)[:, None]


def _pick(hidden_TD: Tensor, sequences: Sequences, lengths: Tensor, *, last: bool) -> Tensor:
    if sequences.num_tokens == 0:
        return hidden_TD.new_zeros(len(sequences), hidden_TD.shape[1])
    cu = sequences.cu_seqlens.long()
    rows = (cu[1:] - 1) if last else cu[:-1]
    picked = hidden_TD[rows.clamp(0, sequences.num_tokens - 1)]
    return torch.where(lengths[:, None] > 0, picked, torch.zeros_like(picked))
