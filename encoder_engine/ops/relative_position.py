"""Maps relative distances to buckets, the rows of learned tables (T5, MPNet, DeBERTa)."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from encoder_engine.errors import ShapeError

if TYPE_CHECKING:
    import torch
    from torch import Tensor

__all__ = ["log_position_entries", "relative_position_buckets"]


def relative_position_buckets(
    num_buckets: int = 32, max_distance: int = 128, *, device: torch.device | str = "cpu"
) -> Tensor:
    """Return the bucket of each distance -max_distance .. max_distance, as in T5 and MPNet.

    Half of the buckets are for keys after the query (Raffel et al. 2020). In each half, the first
    half of the buckets hold one distance each, the others distances in equal steps of the
    logarithm; the last bucket holds every distance from ``max_distance`` on.
    ``table_NH[buckets].T``, [H, 2 max_distance + 1], is a ``relative_bias_HR`` of
    :func:`attention`.

    Returns int64 [2 max_distance + 1]. Raises :class:`ShapeError` for a number of buckets that is
    no multiple of four, or a ``max_distance`` within the buckets of one distance each.
    """
    import torch

    exact = num_buckets // 4
    if num_buckets < 4 or num_buckets % 4 or max_distance <= exact:
        raise ShapeError(
            f"num_buckets must be a positive multiple of 4 and max_distance more than a quarter of "
            f"it, got {num_buckets} and {max_distance}"
        )
    distances = torch.arange(-max_distance, max_distance + 1)
    away = distances.abs()
    # In float32, as the models were trained: at a border, float64 may choose the other bucket.
    octaves = torch.log(away.clamp(min=1).float() / exact) / math.log(max_distance / exact)
    far = (exact + (octaves * exact).long()).clamp(max=2 * exact - 1)
    buckets = torch.where(away < exact, away, far) + 2 * exact * (distances > 0)
    return buckets.to(device)


def log_position_entries(
    num_buckets: int | None, max_distance: int, *, device: torch.device | str = "cpu"
) -> Tensor:
    """Return the index among 2 N entries of each distance -max_distance .. max_distance (DeBERTa).

    N is ``num_buckets``; None: ``max_distance``, and every distance has its own entry, except that
    a query ``max_distance`` after its key has the entry of one less. Distances up to N / 2 have an
    entry each; beyond, they share entries in equal steps of the logarithm (He et al. 2021, v2).
    Distances beyond ``max_distance`` have the outermost entry. Entries count the query's position
    minus the key's, as in the published tables.

    Returns int64 [2 max_distance + 1]. Raises :class:`ShapeError` for a number of buckets that is
    odd or below 4, or a ``max_distance`` of at most ``num_buckets / 2 + 1``.
    """
    import torch

    distance = -torch.arange(-max_distance, max_distance + 1)
    if num_buckets is None:
        return (distance + max_distance).clamp(0, 2 * max_distance - 1).to(device)
    middle = num_buckets // 2
    if num_buckets < 4 or num_buckets % 2 or max_distance - 1 <= middle:
        raise ShapeError(
            f"num_buckets must be even and at least 4, and max_distance more than num_buckets / 2 "
            f"+ 1, got {num_buckets} and {max_distance}"
        )
    away = distance.abs().clamp(min=middle)
    # In float32, as the models were trained: at a border, float64 may choose the other bucket.
    whole = torch.log(torch.tensor((max_distance - 1) / middle, dtype=torch.float32))
    octaves = torch.log(away.float() / middle) / whole
    far = (torch.ceil(octaves * (middle - 1)) + middle).long() * distance.sign()
    entries = torch.where(distance.abs() <= middle, distance, far) + num_buckets
    return entries.clamp(0, 2 * num_buckets - 1).to(device)
