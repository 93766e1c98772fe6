"""Scores a search by documents that are known to answer the queries.

Dimensions: Q queries, D features, N stored rows.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from encoder_engine.errors import InputError
from encoder_engine.vectors.search import QUERIES

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    import numpy.typing as npt

    from encoder_engine.vectors.hits import Hit
    from encoder_engine.vectors.stored_vectors import StoredVectors

__all__ = ["retrieval_loss", "score_hits"]


def score_hits(
    found: Sequence[Sequence[Hit]], known: Sequence[Collection[int]], depths: Sequence[int]
) -> dict[str, float]:
    """Return ``recall@k`` for each depth k, and ``mrr``, the mean reciprocal rank, in percent.

    ``found``: each query's hits, best first, as many as the largest depth.
    ``known``: the rows that answer each query.
    Recall is the mean share of a query's known rows among the first k. A query without a known row
    among its hits has the reciprocal rank 0. Raises :class:`InputError` for a query without a known
    row, and if there is no query.
    """
    if not found or not all(known):
        raise InputError("expected at least one query, and a known row for each")
    ranks = [
        [rank for rank, hit in enumerate(hits, start=1) if hit.row in rows]
        for hits, rows in zip(found, known, strict=True)
    ]
    scores = {}
    for depth in depths:
        shares = [
            sum(rank <= depth for rank in of_query) / len(set(rows))
            for of_query, rows in zip(ranks, known, strict=True)
        ]
        scores[f"recall@{depth}"] = 100.0 * float(np.mean(shares))
    reciprocal = [1.0 / of_query[0] if of_query else 0.0 for of_query in ranks]
    scores["mrr"] = 100.0 * float(np.mean(reciprocal))
    return scores


def retrieval_loss(
    store: StoredVectors,
    queries_QD: npt.NDArray[np.float32],
    known: Sequence[Collection[int]],
    *,
    scale: float = 20.0,
) -> float:
    """Return the mean of ``-log softmax(scale * q . d)`` of known rows over all rows of a store.

    This is the loss of in-batch negatives with every stored document as a negative. Each known row
    of a query is a term of the mean; the query's other known rows are left out of the denominator.
    Computed in float64, block by block.
    """
    highest = np.full(len(queries_QD), -np.inf)
    sums = np.zeros(len(queries_QD))
    right: list[dict[int, float]] = [{} for _ in known]
    first_row = 0
    queries = queries_QD.astype(np.float64)
    for block_ND in store.float_blocks():
        wide_DN = block_ND.astype(np.float64).T
        for start in range(0, len(queries), QUERIES):
            part = slice(start, start + QUERIES)
            logits_QN = scale * (queries[part] @ wide_DN)
            for place, rows in enumerate(known[part]):
                for row in rows:
                    if first_row <= row < first_row + len(block_ND):
                        right[start + place][row] = float(logits_QN[place, row - first_row])
                        logits_QN[place, row - first_row] = -np.inf
            risen = np.maximum(highest[part], logits_QN.max(1))
            # While all rows so far are known ones, the sum stays 0.
            shift = np.where(np.isfinite(risen), risen, 0.0)
            sums[part] *= np.exp(np.minimum(highest[part] - shift, 0.0))
            sums[part] += np.exp(logits_QN - shift[:, None]).sum(1)
            highest[part] = risen
        first_row += len(block_ND)
    terms = []
    for query, logits in enumerate(right):
        others = highest[query] + np.log(sums[query]) if sums[query] else -np.inf
        terms += [float(np.logaddexp(others, logit) - logit) for logit in logits.values()]
    return float(np.mean(terms))
