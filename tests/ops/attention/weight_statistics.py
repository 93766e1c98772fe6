"""Statistics of attention, from whole matrices of weights."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from torch import Tensor

    from encoder_engine.ops import AttentionStatistics

OFFSETS = (-1, 0, 1)


def statistics_of(weights_LHL: Tensor, marks_LC: Tensor) -> Tensor:
    """Return all statistics of a sequence but the maximum's offset, [L, H, 6 + C]."""
    places = torch.arange(len(weights_LHL), device=weights_LHL.device)
    distance_LL = places - places[:, None]
    columns = [
        weights_LHL.amax(2),
        torch.special.entr(weights_LHL).sum(2),
        (weights_LHL * distance_LL.abs().to(weights_LHL)[:, None]).sum(2),
        *((weights_LHL * (distance_LL == n)[:, None]).sum(2) for n in OFFSETS),
    ]
    return torch.cat([torch.stack(columns, 2), weights_LHL @ marks_LC.to(weights_LHL)], 2)


def joined(found: AttentionStatistics) -> Tensor:
    """Return the statistics but the offset in the order of :func:`statistics_of`."""
    columns = (found.maximum_TH, found.entropy_TH, found.distance_TH)
    return torch.cat([torch.stack(columns, 2), found.near_THO, found.marked_THC], 2)
