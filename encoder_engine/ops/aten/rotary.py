"""Rotary position embeddings by PyTorch's operators."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from torch import Tensor


def rotary(
    query_THD: Tensor, key_TKD: Tensor, table_PD: Tensor, position_ids_T: Tensor
) -> tuple[Tensor, Tensor]:
    """Compute ``ops.rotary`` by PyTorch's operators."""
    cosine, sine = table_PD[position_ids_T][:, None, :].chunk(2, dim=2)

    def rotated(x: Tensor) -> Tensor:
        first, second = x.to(table_PD.dtype).chunk(2, dim=2)
        halves = (first * cosine - second * sine, second * cosine + first * sine)
        return torch.cat(halves, dim=2).to(x.dtype)

    return rotated(query_THD), rotated(key_TKD)
