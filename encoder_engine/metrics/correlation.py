"""Correlations of predicted scores with gold scores."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from encoder_engine.metrics.pairing import paired_scores

if TYPE_CHECKING:
    import numpy.typing as npt

    Scores = npt.NDArray[np.float64]

__all__ = ["pearson", "rank_agreement", "spearman"]


def pearson(gold: npt.ArrayLike, predicted: npt.ArrayLike) -> float:
    """Return Pearson's correlation of two arrays [N]; NaN where either is constant.

    Raises :class:`InputError` for unequal lengths, no row, and a score that is not finite.
    """
    return _correlation(*paired_scores(gold, predicted))


def spearman(gold: npt.ArrayLike, predicted: npt.ArrayLike) -> float:
    """Return Spearman's rank correlation of two arrays [N]; ties share their mean rank.

    NaN where either is constant. Raises :class:`InputError` as :func:`pearson`.
    """
    one, other = paired_scores(gold, predicted)
    return _correlation(_ranks(one), _ranks(other))


def rank_agreement(gold: npt.ArrayLike, predicted: npt.ArrayLike) -> Scores:
    """Return, for each row of two arrays [N], minus the square of (rank difference / N).

    These are scores of single rows for paired tests; Spearman's correlation is one of all rows.
    Ties share their mean rank, so that the order of rows changes nothing. Raises
    :class:`InputError` as :func:`pearson`.
    """
    one, other = paired_scores(gold, predicted)
    return -(((_ranks(one) - _ranks(other)) / len(one)) ** 2)


def _correlation(one: Scores, other: Scores) -> float:
    if np.ptp(one) == 0.0 or np.ptp(other) == 0.0:
        return math.nan
    left, right = one - one.mean(), other - other.mean()
    # Divided first: squares of large scores would overflow.
    left, right = left / np.abs(left).max(), right / np.abs(right).max()
    return float(left @ right / math.sqrt((left @ left) * (right @ right)))


def _ranks(scores: Scores) -> Scores:
    _, inverse, counts = np.unique(scores, return_inverse=True, return_counts=True)
    last = np.cumsum(counts)
    mean: Scores = last - (counts - 1) / 2.0
    return mean[inverse]
