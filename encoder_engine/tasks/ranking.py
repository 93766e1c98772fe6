"""Ranking with a cross-encoder, which encodes query and document together and scores the pair."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, ClassVar, Literal, NamedTuple, Self

import numpy as np

from encoder_engine.dataclass import dataclass
from encoder_engine.errors import InputError
from encoder_engine.metrics.correlation import rank_agreement
from encoder_engine.metrics.ranking import rank_by_score, ranking_scores
from encoder_engine.tasks import engines, models
from encoder_engine.tasks.embedders.examples import (
    RetrievalColumns,
    RetrievalExample,
    are_scored_pairs,
    query_groups,
    read_example,
)
from encoder_engine.tasks.embedders.scores import CORRELATIONS, correlations, unfit_for
from encoder_engine.tasks.lists import ListTask, encode_lists, list_scores, split_lists

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy.typing as npt

    from encoder_engine.inputs.records import Record
    from encoder_engine.models import Encoder
    from encoder_engine.tasks.engines.compiled import CompiledModel
    from encoder_engine.tasks.engines.source import CompiledSource
    from encoder_engine.tasks.items import Items, SavedModel
    from encoder_engine.tasks.models.task_model import TaskModel
    from encoder_engine.tasks.task import Outputs, Windows
    from encoder_engine.text import Tokenizer

__all__ = ["RankingPrediction", "RankingTask"]

# The scores of lists of documents.
RANKINGS = ("ndcg", "mrr", "map")


class RankingPrediction(NamedTuple):
    """The scores (logits) of a query's documents, float64 [n]."""

    scores: npt.NDArray[np.float64]


@dataclass(frozen=True, kw_only=True)
class RankingTask(ListTask[RetrievalExample, RankingPrediction]):
    """Scores documents for queries, as sentence-transformers' ``CrossEncoder`` does.

    Columns: as in the task ``embedding``; without scores, positives have the label 1 and negatives
    0.
    ``loss``: ``binary`` cross-entropy of each document, whose labels lie from 0 to 1, or
    ``listwise`` (ListNet); None: binary.
    ``metric``: the score that selects the best checkpoint; None: nDCG@10, or Spearman's
    correlation where the training rows are scored pairs.
    Fitted in training: ``loss``, and ``pairs``: whether the training rows are scored pairs.
    """

    name: ClassVar[str] = "ranking"

    query: str = "query"
    document: str = "positive"
    negatives: str = "negatives"
    score_column: str = "score"
    loss: Literal["binary", "listwise"] | None = None
    pairs: bool = False
    metric: str | None = None

    @property
    def main_score(self) -> str:
        """The name of the score that selects the best checkpoint."""
        return self.metric or ("spearman" if self.pairs else "ndcg")

    def read(self, record: Record) -> RetrievalExample:
        """Make an example from a row of a file; refuse a query without a document."""
        columns = RetrievalColumns(
            query=self.query,
            documents=self.document,
            negatives=self.negatives,
            scores=self.score_column,
        )
        example = read_example(record, columns)
        if not example.documents:
            record.refuse(f"{self.document} names no document; a query alone has no score")
        return example

    def fit(self, examples: Sequence[RetrievalExample]) -> Self:
        """Return the task with its loss set, and whether the training rows are scored pairs.

        Raises :class:`InputError` if all labels are equal, and for the loss ``binary`` if one is
        not from 0 to 1.
        """
        labels = {label for example in examples for label in _labels(example)}
        if len(labels) < 2:
            raise InputError(
                "all documents of the training rows have one label: there is nothing to learn; "
                "give negatives or scores"
            )
        loss = self.loss or "binary"
        if loss == "binary" and not all(0.0 <= label <= 1.0 for label in labels):
            raise InputError(
                f"scores reach from {min(labels):g} to {max(labels):g}; binary cross-entropy takes "
                "0 to 1: divide them, or set task.loss=listwise"
            )
        return replace(self, loss=loss, pairs=are_scored_pairs(examples))

    def unlabelled(self, example: RetrievalExample) -> str | None:
        """Return None, as every example can be learned: positives and negatives are labels."""
        del example
        return None

    def unscored(
        self, examples: Sequence[RetrievalExample], metric: str | None = None
    ) -> tuple[int, str] | None:
        """Return the index of the first example that ``metric`` cannot score, and why; or None.

        Rows of scored pairs are scored by correlations; other rows are ranked, each on its own.
        """
        found = unfit_for(metric, examples, RANKINGS)
        if found is not None or are_scored_pairs(examples):
            return found
        for place, example in enumerate(examples):
            labels = _labels(example)
            if min(labels) < 0.0:
                return place, (
                    f"the lowest score is {min(labels):g}, and nDCG takes relevances of at least "
                    f"0: give such ones in {self.score_column}, or leave it out of these rows"
                )
            if len(set(labels)) == 1:
                return place, (
                    f"all documents ({len(labels)}) have the label {labels[0]:g}, so that every "
                    f"order is right; give {self.negatives} or different scores, or drop the row"
                )
        return None

    def key(self, example: RetrievalExample) -> object:
        """Return query and documents, by which an example is recognised as a duplicate."""
        return example.query, example.documents

    def gold_key(self, example: RetrievalExample) -> object:
        """Return the labels of the documents, in which duplicate examples must not differ."""
        return _labels(example)

    def encode(
        self, examples: Sequence[RetrievalExample], tokenizer: Tokenizer, windows: Windows
    ) -> Items:
        """Tokenize each query with each of its documents, as one item per example."""
        pairs = [[(one.query, document) for document in one.documents] for one in examples]
        return encode_lists(tokenizer, windows, pairs, [_labels(one) for one in examples])

    def make_model(self, encoder: Encoder) -> TaskModel:
        """Make the task's model from an encoder; its head is random."""
        return models.ListModel.new(encoder, self.loss or "binary")

    def load_model(self, saved: SavedModel) -> TaskModel:
        """Load the task's model, an encoder with its head, as a PyTorch module."""
        return models.ListModel.load(saved, self.loss or "binary")

    def load_compiled(self, source: CompiledSource) -> CompiledModel:
        """Load the task's model for the compiled engine (C++, on a CPU)."""
        return engines.CompiledModel(
            source.load_head("sequence-classification", ("score",)), list_scores
        )

    def decode(
        self, outputs: Outputs, items: Items, examples: Sequence[RetrievalExample]
    ) -> list[RankingPrediction]:
        """Split the scores of a batch's documents into one prediction per query."""
        del examples
        return [RankingPrediction(scores) for scores in split_lists(outputs["scores"], items)]

    def score_names(self, examples: Sequence[RetrievalExample]) -> tuple[str, ...]:
        """Return the names of the scores: correlations for scored pairs, else of rankings."""
        return CORRELATIONS if are_scored_pairs(examples) else RANKINGS

    def score(
        self, examples: Sequence[RetrievalExample], predictions: Sequence[RankingPrediction]
    ) -> dict[str, float]:
        """Return nDCG@10, MRR and MAP within each query's documents, or correlations of pairs."""
        if are_scored_pairs(examples):
            return correlations(
                [one.scores[0] for one in examples], [float(p.scores[0]) for p in predictions]
            )
        both = zip(examples, predictions, strict=True)
        found = ranking_scores(rank_by_score(_labels(one), p.scores) for one, p in both)
        return {
            "ndcg": 100.0 * found.ndcg,
            "mrr": 100.0 * found.mean_reciprocal_rank,
            "map": 100.0 * found.mean_average_precision,
        }

    def groups(self, examples: Sequence[RetrievalExample]) -> npt.NDArray[np.int64]:
        """Return each row's group for the bootstrap: see :func:`query_groups`."""
        return query_groups(examples)

    def row_scores(
        self, examples: Sequence[RetrievalExample], predictions: Sequence[RankingPrediction]
    ) -> npt.NDArray[np.float64]:
        """Return one score per row, float64 [N], for paired significance tests of two models.

        It is nDCG@10 of the row's documents in percent; for a scored pair, minus the square of
        (difference of the ranks of its scores / N).
        """
        if are_scored_pairs(examples):
            gold = [one.scores[0] for one in examples]
            return rank_agreement(gold, [float(p.scores[0]) for p in predictions])
        both = zip(examples, predictions, strict=True)
        return np.array([self.score([one], [found])["ndcg"] for one, found in both])

    def degenerate(self, predictions: Sequence[RankingPrediction]) -> str | None:
        """Return a warning's text if all documents have the same score; else None."""
        if np.ptp(np.concatenate([found.scores for found in predictions])) > 0.0:
            return None
        return "all documents have one score: nothing was learned"

    def to_record(self, example: RetrievalExample, prediction: RankingPrediction) -> dict[str, Any]:
        """Return an example with its prediction as the JSON object that ``predict`` writes."""
        return {
            self.query: example.query,
            "documents": list(example.documents),
            "scores": prediction.scores.tolist(),
        }


def _labels(example: RetrievalExample) -> tuple[float, ...]:
    """Return each document's label: its score; without scores, 1 for positives, 0 for negatives."""
    if example.scores:
        return example.scores
    return (1.0,) * len(example.positives) + (0.0,) * len(example.negatives)
