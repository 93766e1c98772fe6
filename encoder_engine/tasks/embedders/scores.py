"""Scores of embedded examples: correlations of scored pairs, and rankings of documents."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from encoder_engine.errors import InputError
from encoder_engine.metrics.correlation import pearson, spearman
from encoder_engine.metrics.ranking import rank_by_score, ranking_scores
from encoder_engine.tasks.embedders.examples import is_scored_pair
from encoder_engine.tasks.labels import unfit_for_correlation

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import numpy.typing as npt

    from encoder_engine.tasks.embedders.examples import RetrievalExample

    Scores = npt.NDArray[np.float64]

__all__ = [
    "CORRELATIONS",
    "NAMES",
    "Corpus",
    "correlations",
    "mean_scores",
    "query_scores",
    "unfit_for",
]

DEPTH = 10
# The scores of scored pairs.
CORRELATIONS = ("spearman", "pearson")
# The scores of a query, in the order of query_scores.
NAMES = ("ndcg", "mrr", "map", "recall", "accuracy")


class Corpus:
    """The distinct documents and queries of examples, and the documents relevant to each query."""

    def __init__(self, examples: Sequence[RetrievalExample]) -> None:
        self.documents: dict[str, int] = {}
        self.queries: dict[str, int] = {}
        self.relevant: list[set[int]] = []
        for example in examples:
            for text in example.documents:
                self.documents.setdefault(text, len(self.documents))
            query = self.queries.setdefault(example.query, len(self.queries))
            if query == len(self.relevant):
                self.relevant.append(set())
            self.relevant[query] |= {self.documents[text] for text in example.positives}


def correlations(gold: Sequence[float], similarities: Sequence[float]) -> dict[str, float]:
    """Return Spearman's and Pearson's correlation of gold scores and similarities, in percent.

    NaN for constant similarities.
    """
    return {
        "spearman": 100.0 * spearman(gold, similarities),
        "pearson": 100.0 * pearson(gold, similarities),
    }


def unfit_for(
    metric: str | None, examples: Sequence[RetrievalExample], rankings: Sequence[str]
) -> tuple[int, str] | None:
    """Return the index of the first example that a metric cannot score, and how to mend it.

    Correlations score pairs whose gold scores differ; the metrics in ``rankings`` score other rows.
    None: every example can be scored, or ``metric`` is neither a correlation nor in ``rankings``.
    """
    others = (place for place, one in enumerate(examples) if not is_scored_pair(one))
    first = next(others, None)
    if metric in CORRELATIONS and first is not None:
        found = examples[first]
        return first, (
            f"{metric} compares rows of one document with one score; this row has "
            f"{len(found.documents)} documents and {len(found.scores)} scores: give such rows "
            f"alone, or set task.metric={rankings[0]} to score how documents are ranked"
        )
    if metric in CORRELATIONS:
        reason = unfit_for_correlation(metric, [one.scores[0] for one in examples])
        return None if reason is None else (0, reason)
    if metric in rankings and first is None and examples:
        return 0, (
            f"{metric} scores how documents are ranked, and this row and all others are one "
            f"document with one score: set task.metric={CORRELATIONS[0]}, or give rows without "
            "scores or of several documents"
        )
    return None


def query_scores(
    corpus: Corpus, similarities: Callable[[slice], npt.NDArray[np.floating]]
) -> Scores:
    """Return nDCG@10, MRR, MAP, recall@10 and accuracy@1 of each query, over all documents.

    ``similarities``: a function from a slice of queries to their similarities to all documents,
    [q, N].
    Returns values from 0 to 1, float64 [Q, 5]; NaN for a query without a relevant document.
    """
    found = np.full((len(corpus.queries), len(NAMES)), np.nan)
    rows = max(1, 2**22 // max(len(corpus.documents), 1))
    for start in range(0, len(found), rows):
        part = similarities(slice(start, start + rows))
        for place, scores in enumerate(part, start):
            relevant = corpus.relevant[place]
            if not relevant:
                continue
            gains = np.zeros(len(corpus.documents))
            gains[list(relevant)] = 1.0
            order = rank_by_score(gains, scores)
            one = ranking_scores([order], depth=DEPTH)
            recall = order[:DEPTH].sum() / len(relevant)
            found[place] = (
                *(one.ndcg, one.mean_reciprocal_rank, one.mean_average_precision),
                *(recall, order[0]),
            )
    return found


def mean_scores(scores: Scores, weights: Scores | None = None) -> dict[str, float]:
    """Return the weighted means of scores [Q, 5] in percent; rows that are NaN are left out.

    Raises :class:`InputError` where every row is NaN.
    """
    scored = ~np.isnan(scores[:, 0])
    if not scored.any():
        raise InputError("no query has a relevant document: there is nothing to score")
    shares = None if weights is None else weights[scored]
    means = np.average(scores[scored], axis=0, weights=shares)
    return dict(zip(NAMES, (100.0 * means).tolist(), strict=True))
