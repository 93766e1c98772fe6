"""The base of tasks on queries and documents: columns, prompts, tokenization and scores."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping  # noqa: TC003 - read when tasks are made of settings
from dataclasses import field
from typing import TYPE_CHECKING, Any, Generic, TypeVar

import numpy as np

from encoder_engine.dataclass import dataclass
from encoder_engine.errors import ConfigError
from encoder_engine.metrics.correlation import rank_agreement
from encoder_engine.packing.token_rows import TokenRows
from encoder_engine.tasks.embedders.examples import (
    NUM_NEGATIVES,
    NUM_POSITIVES,
    RetrievalColumns,
    RetrievalExample,
    are_scored_pairs,
    query_groups,
    read_example,
    text_ids,
)
from encoder_engine.tasks.embedders.scores import (
    CORRELATIONS,
    NAMES,
    Corpus,
    correlations,
    mean_scores,
    query_scores,
    unfit_for,
)
from encoder_engine.tasks.items import Items, Ragged, TaskBatch
from encoder_engine.tasks.task import Task

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import numpy.typing as npt

    from encoder_engine.inputs.records import Record
    from encoder_engine.tasks.task import Windows
    from encoder_engine.text import Encoding, Tokenizer

__all__ = ["RetrievalPrediction", "RetrievalTask", "Vectors", "join_rows"]

Vectors = TypeVar("Vectors")
# The kinds of texts, and the names of their prompts.
_PROMPTED = ("query", "document")


@dataclass(frozen=True, eq=False)
class RetrievalPrediction(Generic[Vectors]):
    """The vectors of a query and of its documents."""

    query: Vectors
    documents: tuple[Vectors, ...]


@dataclass(frozen=True, kw_only=True)
class RetrievalTask(Task[RetrievalExample, RetrievalPrediction[Vectors]], Generic[Vectors]):
    """A task on queries and documents.

    ``query``, ``document``, ``negatives``, ``score_column``, ``vector``: the columns; ``document``
    and ``negatives`` hold a text or a list of texts, ``score_column`` a number or a list of them.
    ``prompts``: texts put before every ``query`` and ``document``; by default the checkpoint's.
    ``max_seq_length``: the most tokens of a text, also of the saved model; None: the checkpoint's.
    ``metric``: the score that selects the best checkpoint; None: Spearman's correlation for losses
    of scored pairs, closeness to the teacher for the loss ``vectors``, else nDCG@10.
    """

    query: str = "query"
    document: str = "positive"
    negatives: str = "negatives"
    score_column: str = "score"
    vector: str = "vector"
    prompts: Mapping[str, str] = field(default_factory=dict)
    max_seq_length: int | None = None
    metric: str | None = None

    @property
    @abstractmethod
    def learns_scores(self) -> bool:
        """Whether the loss reads a gold score of each query-document pair."""

    @property
    def main_score(self) -> str:
        """The name of the score that selects the best checkpoint."""
        return self.metric or ("spearman" if self.learns_scores else "ndcg")

    @property
    def columns(self) -> RetrievalColumns:
        """The names of the columns that the task reads."""
        return RetrievalColumns(
            query=self.query,
            documents=self.document,
            negatives=self.negatives,
            scores=self.score_column,
            vector=self.vector,
        )

    def read(self, record: Record) -> RetrievalExample:
        """Make an example from a row of a file; without documents it is a single text to embed."""
        return read_example(record, self.columns)

    def unlabelled(self, example: RetrievalExample) -> str | None:
        """Return why an example without a document cannot be learned; None: it has one."""
        if example.documents:
            return None
        return (
            f"{self.document} names no document for the query; name another column by "
            "task.document, or drop the row"
        )

    def unscored(
        self, examples: Sequence[RetrievalExample], metric: str | None = None
    ) -> tuple[int, str] | None:
        """Return the index of the first example that ``metric`` cannot score, and why; or None.

        Correlations score only rows of scored pairs; retrieval scores score other rows.
        """
        for place, example in enumerate(examples):
            # Not a subclass's own, which may need no documents.
            reason = RetrievalTask.unlabelled(self, example)
            if reason:
                return place, reason
        return unfit_for(metric, examples, NAMES)

    def key(self, example: RetrievalExample) -> object:
        """Return query and documents, by which an example is recognised as a duplicate."""
        return example.query, example.documents

    def gold_key(self, example: RetrievalExample) -> object:
        """Return an example's gold scores; duplicates with different ones contradict each other."""
        return example.scores

    def given_prompts(self) -> dict[str, str]:
        """Return the recipe's prompts; raises :class:`ConfigError` for names that no text gets."""
        for name in self.prompts:
            if name not in _PROMPTED:
                raise ConfigError(
                    f"task.prompts names {name!r}, which no text gets in training; its names are "
                    f"{' and '.join(_PROMPTED)}"
                )
        return dict(self.prompts)

    def prompted(self, kind: str, texts: Sequence[str]) -> list[str]:
        """Return texts with the prompt of their ``kind``, query or document, in front."""
        prompt = self.prompts.get(kind, "")
        return [prompt + text for text in texts]

    def limit(self, kind: str, windows: Windows) -> int:
        """Return the most tokens of a query or of a document; longer texts are truncated."""
        del kind
        return min(windows.max_length, self.max_seq_length or windows.max_length)

    def encode_texts(
        self, kind: str, texts: Sequence[str], tokenizer: Tokenizer, windows: Windows
    ) -> tuple[TokenRows, npt.NDArray[np.bool_]]:
        """Tokenize queries or documents; return token rows, and whether each is truncated, [N]."""
        encoding = tokenizer.encode_batch(
            self.prompted(kind, texts), max_length=self.limit(kind, windows)
        )
        return self.rows_of(kind, encoding, tokenizer), np.asarray(encoding.truncated)

    def rows_of(self, kind: str, encoding: Encoding, tokenizer: Tokenizer) -> TokenRows:
        """Return the token rows that the model computes, given tokenized queries or documents."""
        del kind, tokenizer
        return TokenRows.of(encoding)

    def encode(
        self, examples: Sequence[RetrievalExample], tokenizer: Tokenizer, windows: Windows
    ) -> Items:
        """Tokenize examples; each is an item, whose sequences are the query, then the documents."""
        queries = [example.query for example in examples]
        documents = [text for example in examples for text in example.documents]
        parts = [
            self.encode_texts(kind, texts, tokenizer, windows)
            for kind, texts in (("query", queries), ("document", documents))
            if texts
        ]
        rows = join_rows([part for part, _ in parts])
        cut = np.concatenate([np.zeros(0, bool), *(cut for _, cut in parts)])
        positives = np.array([len(example.positives) for example in examples], np.int64)
        negatives = np.array([len(example.negatives) for example in examples], np.int64)
        offsets = np.zeros(len(examples) + 1, np.int64)
        np.cumsum(1 + positives + negatives, out=offsets[1:])
        order = np.zeros(offsets[-1], np.int64)
        first = np.zeros(offsets[-1], bool)
        first[offsets[:-1]] = True
        order[first] = np.arange(len(examples))
        order[~first] = len(examples) + np.arange(len(documents))
        owners = np.repeat(np.arange(len(examples)), np.diff(offsets))
        columns: dict[str, npt.NDArray[Any] | Ragged] = {
            NUM_POSITIVES: positives,
            NUM_NEGATIVES: negatives,
            "text_ids": Ragged(text_ids(queries + documents)[order], offsets),
        }
        columns |= self.gold_columns(examples, offsets, order)
        return Items(
            rows=rows.take(order.astype(np.intp)),
            offsets=offsets,
            examples=np.arange(len(examples)),
            columns=columns,
            num_truncated=len(np.unique(owners[cut[order]])),
        )

    def gold_columns(
        self,
        examples: Sequence[RetrievalExample],
        offsets: npt.NDArray[np.int64],
        order: npt.NDArray[np.int64],
    ) -> dict[str, npt.NDArray[Any] | Ragged]:
        """Return what the loss reads of the examples, by name, as columns of :class:`Items`.

        They are the gold scores and the teacher's vectors, each only if all examples have them.
        ``offsets``: the index of each item's first text, then the number of texts.
        ``order``: for each text of the items in turn, its index in the list of all queries followed
        by all documents.
        """
        del order
        found: dict[str, npt.NDArray[Any] | Ragged] = {}
        if examples and all(len(e.scores) == len(e.documents) > 0 for e in examples):
            ends = offsets - np.arange(len(offsets))
            values = np.array([score for e in examples for score in e.scores], np.float32)
            found["scores"] = Ragged(values, ends)
        widths = {len(example.vector) for example in examples}
        if len(widths) == 1 and widths != {0}:
            found["vector"] = np.array([example.vector for example in examples], np.float32)
        return found

    def batch(self, items: Items) -> TaskBatch:
        """Make the model's input from a batch of items; their columns are the loss's targets."""
        targets = {
            name: column.values if isinstance(column, Ragged) else column
            for name, column in items.columns.items()
        }
        return TaskBatch(items.rows, targets)

    @abstractmethod
    def paired(self, predictions: Sequence[RetrievalPrediction[Vectors]]) -> list[float]:
        """Return the similarity of each query with its first document."""

    @abstractmethod
    def similarities(
        self, queries: Sequence[Vectors], documents: Sequence[Vectors]
    ) -> npt.NDArray[np.floating]:
        """Return the similarities of all queries with all documents, [Q, N]."""

    def score_names(self, examples: Sequence[RetrievalExample]) -> tuple[str, ...]:
        """Return the names of the scores: correlations for scored pairs, else of retrieval."""
        return CORRELATIONS if are_scored_pairs(examples) else NAMES

    def score(
        self,
        examples: Sequence[RetrievalExample],
        predictions: Sequence[RetrievalPrediction[Vectors]],
    ) -> dict[str, float]:
        """Return correlations for scored pairs, else scores of retrieval among all documents."""
        if are_scored_pairs(examples):
            return correlations([e.scores[0] for e in examples], self.paired(predictions))
        return mean_scores(self._query_scores(examples, predictions)[0])

    def _query_scores(
        self,
        examples: Sequence[RetrievalExample],
        predictions: Sequence[RetrievalPrediction[Vectors]],
    ) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.int64]]:
        """Return nDCG, MRR, MAP, recall and accuracy of each distinct query, [Q, 5].

        Also returns the index of each row's query, int64 [N].
        """
        corpus = Corpus(examples)
        queries: dict[str, Vectors] = {}
        documents: dict[str, Vectors] = {}
        for example, found in zip(examples, predictions, strict=True):
            queries.setdefault(example.query, found.query)
            for text, vector in zip(example.documents, found.documents, strict=True):
                documents.setdefault(text, vector)
        all_queries, all_documents = list(queries.values()), list(documents.values())
        scores = query_scores(
            corpus, lambda part: self.similarities(all_queries[part], all_documents)
        )
        return scores, np.array([corpus.queries[example.query] for example in examples], np.int64)

    def groups(self, examples: Sequence[RetrievalExample]) -> npt.NDArray[np.int64]:
        """Return each row's group for the bootstrap: see :func:`query_groups`."""
        return query_groups(examples)

    def resampling(
        self,
        examples: Sequence[RetrievalExample],
        predictions: Sequence[RetrievalPrediction[Vectors]],
    ) -> Callable[[npt.NDArray[np.int64]], dict[str, float]]:
        """Return a function from the row indices of a bootstrap sample to the sample's scores.

        A query is scored among the documents of all rows: with those of the sample alone, scores
        would be higher. Scored pairs are scored as in :meth:`Task.resampling`.
        """
        if are_scored_pairs(examples):
            return super().resampling(examples, predictions)
        scores, queries = self._query_scores(examples, predictions)
        # A query counts once, however many rows it has.
        weights = 1.0 / np.bincount(queries)

        def score(rows: npt.NDArray[np.int64]) -> dict[str, float]:
            drawn = queries[rows]
            return mean_scores(scores[drawn], weights[drawn])

        return score

    def row_scores(
        self,
        examples: Sequence[RetrievalExample],
        predictions: Sequence[RetrievalPrediction[Vectors]],
    ) -> npt.NDArray[np.float64]:
        """Return one score per row, float64 [N], for paired significance tests of two models.

        It is nDCG@10 of the row's query over all documents. A query of k rows counts once: its
        score is multiplied by N / (k * number of queries). A scored pair gets minus the square of
        (difference of the ranks of its scores / N).
        """
        if are_scored_pairs(examples):
            gold = [example.scores[0] for example in examples]
            return rank_agreement(gold, self.paired(predictions))
        scores, queries = self._query_scores(examples, predictions)
        weights = len(queries) / (len(scores) * np.bincount(queries))
        ndcg: npt.NDArray[np.float64] = scores[:, NAMES.index("ndcg")] * weights
        return ndcg[queries]

    def degenerate(self, predictions: Sequence[RetrievalPrediction[Vectors]]) -> str | None:
        """Return a warning's text if several queries are all equally similar; else None.

        The similarities are those of :meth:`paired`.
        """
        pairs = [found for found in predictions if found.documents]
        if len(pairs) < 2 or np.ptp(self.paired(pairs)) > 0.0:
            return None
        return "all pairs are equally similar: nothing was learned"

    def to_record(
        self, example: RetrievalExample, prediction: RetrievalPrediction[Vectors]
    ) -> dict[str, Any]:
        """Return the JSON object that ``predict`` writes: the similarity of each document."""
        found: dict[str, Any] = {self.query: example.query}
        if not example.documents:
            return found
        similar = self.similarities([prediction.query], prediction.documents)[0]
        return found | {
            "documents": list(example.documents),
            "similarities": [float(x) for x in similar],
        }


def join_rows(parts: Sequence[TokenRows]) -> TokenRows:
    """Concatenate token rows, with ``type_ids`` and ``unattended`` where any part has them."""
    lengths = np.concatenate([np.zeros(1, np.int32), *(part.lengths for part in parts)])
    types = None
    if any(part.type_ids is not None for part in parts):
        filled = (np.zeros_like(p.ids) if p.type_ids is None else p.type_ids for p in parts)
        types = np.concatenate(list(filled))
    unattended = None
    if any(part.unattended is not None for part in parts):
        unattended = np.concatenate(
            [np.zeros(len(p), np.int32) if p.unattended is None else p.unattended for p in parts]
        )
    return TokenRows(
        ids=np.concatenate([np.zeros(0, np.int32), *(part.ids for part in parts)]),
        cu_seqlens=np.cumsum(lengths, dtype=np.int32),
        type_ids=types,
        unattended=unattended,
    )
