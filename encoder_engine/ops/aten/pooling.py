"""Pooling by PyTorch: rows are scattered into one row per sequence, by sum or maximum."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
import torch.nn.functional as F  # noqa: N812

if TYPE_CHECKING:
    from torch import Tensor

    from encoder_engine.packing import Sequences


def pooling(hidden_TD: Tensor, sequences: Sequences, *, mode: str, normalize: bool) -> Tensor:
    """Compute ``ops.pooling`` by PyTorch's operators."""
    wide = hidden_TD if hidden_TD.dtype == torch.float64 else hidden_TD.float()
    pooled_BD = _pool(wide, sequences, mode)
    if normalize:
        pooled_BD = F.normalize(pooled_BD, dim=-1)
    return pooled_BD.to(hidden_TD.dtype)


def _pool(hidden_TD: Tensor, sequences: Sequences, mode: str) -> Tensor:
    ends_B, lengths_B = sequences.cu_seqlens[1:], sequences.cu_seqlens.diff()
    num_rows, width = hidden_TD.shape
    zeros_BD = hidden_TD.new_zeros(ends_B.shape[0], width)
    ids_T, filled_B1 = sequences.sequence_ids, (lengths_B > 0)[:, None]
    if mode in ("cls", "lasttoken"):
        if num_rows == 0:
            return zeros_BD + hidden_TD.sum()
        rows_B = ends_B - (lengths_B if mode == "cls" else 1)
        # An empty sequence reads some row; the result is overwritten by zeros.
        return torch.where(filled_B1, hidden_TD[rows_B.clamp(0, num_rows - 1)], 0.0)
    if mode == "max":
        ids_TD = ids_T[:, None].expand(-1, width)
        highest_BD = (zeros_BD - torch.inf).scatter_reduce(0, ids_TD, hidden_TD, "amax")
        return torch.where(filled_B1, highest_BD, 0.0)
    if mode == "weightedmean":
        hidden_TD = hidden_TD * (sequences.positions + 1).to(hidden_TD.dtype)[:, None]
    summed_BD = zeros_BD.index_add(0, ids_T, hidden_TD)
    n = lengths_B.clamp(min=1).to(hidden_TD.dtype)[:, None]
    divisor = {"mean": n, "mean_sqrt_len_tokens": n.sqrt(), "weightedmean": n * (n + 1) / 2}
    return summed_BD / divisor[mode]
