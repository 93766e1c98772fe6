"""Losses of pairs and triplets: CoSENT, the cosine's squared error, and the triplet margin.

B pairs or triplets, D features.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, get_args

import torch
import torch.nn.functional as F  # noqa: N812

from encoder_engine.errors import UnknownNameError
from encoder_engine.metrics.distances import Distance

if TYPE_CHECKING:
    from torch import Tensor

__all__ = ["DISTANCES", "Distance", "cosent", "cosine_error", "cosines", "triplet"]

DISTANCES: tuple[Distance, ...] = get_args(Distance)


def cosines(first_BD: Tensor, second_BD: Tensor) -> Tensor:
    """Return the cosine of each pair of vectors, [B]."""
    return (F.normalize(first_BD, dim=1) * F.normalize(second_BD, dim=1)).sum(1)


def cosine_error(first_BD: Tensor, second_BD: Tensor, scores_B: Tensor) -> Tensor:
    """Return ``((cosine - score) ** 2).sum()`` over pairs; scores usually lie from 0 to 1."""
    return (cosines(first_BD, second_BD) - scores_B).square().sum()


def cosent(first_BD: Tensor, second_BD: Tensor, scores_B: Tensor, *, scale: float = 20.0) -> Tensor:
    """Return ``log(1 + sum exp(scale * (cos_i - cos_j)))`` over all i scored below j, times B.

    Only the order of the scores counts. The sum takes O(B log B): after sorting by score, the
    pairs scored above i are a suffix.
    """
    scores_B, order_B = scores_B.sort()
    scaled_B = scale * cosines(first_BD, second_BD)[order_B]
    suffix_B = torch.logcumsumexp(-scaled_B.flip(0), 0).flip(0)
    # Nothing is scored above the highest.
    suffix = torch.cat([suffix_B, scaled_B.new_full((1,), -torch.inf)])
    above_B = torch.searchsorted(scores_B, scores_B, right=True)
    exponents = torch.cat([scaled_B.new_zeros(1), scaled_B + suffix[above_B]])
    return len(scores_B) * exponents.logsumexp(0)


def triplet(
    anchors_BD: Tensor,
    positives_BD: Tensor,
    negatives_BD: Tensor,
    *,
    distance: Distance = "euclidean",
    margin: float = 5.0,
) -> Tensor:
    """Return ``relu(distance(a, p) - distance(a, n) + margin).sum()``.

    Raises :class:`UnknownNameError` for another distance.
    """
    near_B, far_B = (_distances(anchors_BD, x, distance) for x in (positives_BD, negatives_BD))
    return F.relu(near_B - far_B + margin).sum()


def _distances(first_BD: Tensor, second_BD: Tensor, distance: Distance) -> Tensor:
    if distance == "cosine":
        return 1.0 - cosines(first_BD, second_BD)
    if distance not in DISTANCES:
        raise UnknownNameError(f"no distance {distance!r}; there are {', '.join(DISTANCES)}")
    # The norm has the gradient 0 at equal vectors, where the square root's is not finite.
    order = 1 if distance == "manhattan" else 2
    found_B: Tensor = torch.linalg.vector_norm(first_BD - second_BD, order, dim=1)
    return found_B
