"""Scores of rankings: mean average precision, mean reciprocal rank, nDCG.

A query is one row of relevances in ranked order, best first. Queries without a relevant document
are left out, and the number of scored queries is returned.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from encoder_engine.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Iterable

    import numpy.typing as npt

    Relevance = npt.NDArray[np.float64]

__all__ = ["RankingScores", "rank_by_score", "ranking_scores"]


class RankingScores(NamedTuple):
    """Means over the queries that have a relevant document, shares from 0 to 1.

    ``mean_average_precision``, ``mean_reciprocal_rank``: over the whole ranking.
    ``ndcg``: computed on the first ``depth`` documents; a gain is ``relevance / log2(rank + 1)``.
    """

    mean_average_precision: float
    mean_reciprocal_rank: float
    ndcg: float
    num_queries: int
    num_left_out: int


def rank_by_score(relevance: npt.ArrayLike, scores: npt.ArrayLike) -> Relevance:
    """Return relevances [D] in descending order of scores [D].

    Among equal scores, the least relevant document comes first, so that ties earn nothing and the
    order of input does not matter. Raises :class:`InputError` for other shapes and a score of NaN.
    """
    gains, given = np.asarray(relevance, np.float64), np.asarray(scores, np.float64)
    if gains.shape != given.shape or gains.ndim != 1:
        raise InputError(
            f"relevances {gains.shape} and scores {given.shape} must be one number per document"
        )
    if np.isnan(given).any():
        document = int(np.flatnonzero(np.isnan(given))[0])
        raise InputError(f"document {document} has the score NaN, which has no rank")
    return gains[np.lexsort((gains, -given))]


def ranking_scores(queries: Iterable[npt.ArrayLike], *, depth: int = 10) -> RankingScores:
    """Score rankings; each of ``queries`` holds the relevances [D] >= 0 in ranked order.

    Raises :class:`InputError` for a negative or non-finite relevance, and where no query has a
    relevant document.
    """
    scores, num_left_out = [], 0
    for row, given in enumerate(queries):
        gains = np.asarray(given, np.float64)
        if gains.ndim != 1 or not np.isfinite(gains).all() or (gains < 0).any():
            raise InputError(
                f"query {row} must have one finite relevance >= 0 per document", row=row
            )
        if not gains.any():
            num_left_out += 1
            continue
        ranks = np.flatnonzero(gains > 0) + 1.0
        precision = float((np.arange(1, len(ranks) + 1) / ranks).mean())
        ideal = _discounted(-np.sort(-gains), depth)
        scores.append((precision, 1.0 / ranks[0], _discounted(gains, depth) / ideal))
    if not scores:
        raise InputError("no query has a relevant document: there is nothing to score")
    average_precision, reciprocal_rank, ndcg = np.mean(scores, axis=0).tolist()
    return RankingScores(average_precision, reciprocal_rank, ndcg, len(scores), num_left_out)


def _discounted(gains: Relevance, depth: int) -> float:
    first = gains[:depth]
    return float((first / np.log2(np.arange(2, len(first) + 2))).sum())
