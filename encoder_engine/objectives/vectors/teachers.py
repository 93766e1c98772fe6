"""Distillation of vectors: trains a text's vector to approach a teacher's."""

from __future__ import annotations

from typing import TYPE_CHECKING, get_args

import torch
import torch.nn.functional as F  # noqa: N812

from encoder_engine.errors import InputError, UnknownNameError
from encoder_engine.metrics.distances import VectorMetric

if TYPE_CHECKING:
    from torch import Tensor

__all__ = ["VECTOR_METRICS", "VectorMetric", "vector_error"]

VECTOR_METRICS: tuple[VectorMetric, ...] = get_args(VectorMetric)


def vector_error(
    vectors_ND: Tensor, teacher_ND: Tensor, *, metric: VectorMetric = "cosine"
) -> Tensor:
    """Return the distance of each vector from the teacher's, summed over the N texts.

    ``metric``: ``"mse"``: the mean over features of squared differences; ``"l2"``: the Euclidean
    distance; ``"cosine"``: ``1 - cosine``.

    Raises :class:`InputError` for another width, :class:`UnknownNameError` for another metric.
    """
    if vectors_ND.shape != teacher_ND.shape:
        raise InputError(
            f"the teacher's vectors are {list(teacher_ND.shape)}, the model's "
            f"{list(vectors_ND.shape)}: give as many features as the model has"
        )
    if metric == "mse":
        return (vectors_ND - teacher_ND).square().mean(1).sum()
    if metric == "l2":
        lengths_N: Tensor = torch.linalg.vector_norm(vectors_ND - teacher_ND, dim=1)
        return lengths_N.sum()
    if metric == "cosine":
        return (1.0 - F.cosine_similarity(vectors_ND, teacher_ND, dim=1)).sum()
    raise UnknownNameError(f"no metric {metric!r}; there are {', '.join(VECTOR_METRICS)}")
