"""Scores of embedded examples: correlations of scored pairs, and rankings of documents."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from encoder_engine.metrics.correlation import pearson, spearman
from encoder_engine.metrics.ranking import rank_by_score, ranking_scores

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    import numpy.typing as npt

    from encoder_engine.tasks.embedders.examples import RetrievalExample

    Scores = npt.NDArray[np.float64]

__all__ = ["Corpus", "correlations", "retrieval_scores"]

DEPTH = 10


class Corpus:
    """The distinct documents of examples, and the relevant ones of each distinct query."""

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
    """Return Spearman's and Pearson's correlation in percent; NaN for constant similarities."""
    return {
        "spearman": 100.0 * spearman(gold, similarities),
        "pearson": 100.0 * pearson(gold, similarities),
    }


def retrieval_scores(
    corpus: Corpus, similarities: Callable[[slice], npt.NDArray[np.floating]]
) -> dict[str, float]:
    """Return MRR, nDCG@10, MAP, recall@10 and accuracy@1 in percent, over all documents.

    ``similarities``: a function from a range of queries to their similarities [q, N].
    """
    recalls: list[float] = []
    firsts: list[bool] = []

    def ranked() -> Iterator[Scores]:
        rows = max(1, 2**22 // max(len(corpus.documents), 1))
        for start in range(0, len(corpus.queries), rows):
            found = similarities(slice(start, start + rows))
            for scores, relevant in zip(found, corpus.relevant[start : start + rows], strict=True):
                gains = np.zeros(len(corpus.documents))
                gains[list(relevant)] = 1.0
                order = rank_by_score(gains, scores)
                if relevant:
                    recalls.append(float(order[:DEPTH].sum() / len(relevant)))
                    firsts.append(bool(order[0]))
                yield order

    scores = ranking_scores(ranked(), depth=DEPTH)
    return {
        "ndcg": 100.0 * scores.ndcg,
        "mrr": 100.0 * scores.mean_reciprocal_rank,
        "map": 100.0 * scores.mean_average_precision,
        "recall": 100.0 * float(np.mean(recalls)),
        "accuracy": 100.0 * float(np.mean(firsts)),
    }
