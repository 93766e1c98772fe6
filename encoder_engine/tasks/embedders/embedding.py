"""The task of embedding texts: one vector per text, similar for related texts."""

from __future__ import annotations

import hashlib
import json
from dataclasses import replace
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np

from encoder_engine.dataclass import dataclass
from encoder_engine.embedding.embedder import Embedder
from encoder_engine.engine.outputs import Pooled
from encoder_engine.errors import InputError, UnsupportedFeatureError
from encoder_engine.kinds.options import document_prompt
from encoder_engine.kinds.plan import describe_results
from encoder_engine.opening.opening import open_embedder
from encoder_engine.tasks import embedders, engines
from encoder_engine.tasks.embedders.examples import (
    RetrievalExample,
    are_scored_lists,
    check_loss,
    is_scored_pair,
)
from encoder_engine.tasks.embedders.retrieval_task import RetrievalPrediction
from encoder_engine.tasks.embedders.settings import EmbeddingSettings
from encoder_engine.tasks.items import Ragged

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Sequence

    import numpy.typing as npt

    from encoder_engine.engine.compiled import CompiledEngine
    from encoder_engine.inputs.records import Record
    from encoder_engine.models.encoder import Encoder
    from encoder_engine.tasks.embedders.settings import LossName
    from encoder_engine.tasks.engines.compiled import CompiledModel
    from encoder_engine.tasks.engines.source import CompiledSource
    from encoder_engine.tasks.items import Items, SavedModel, TaskBatch
    from encoder_engine.tasks.models.task_model import TaskModel
    from encoder_engine.tasks.task import Outputs

__all__ = ["EmbeddingTask"]

Vector = Any
# Cosines, and minus the mean squared error of features as sentence-transformers' MSEEvaluator
# calls it; both times 100, so that higher is better.
TEACHER_SCORES = COSINE, NEGATIVE_MSE = "cosine", "negative_mse"
_SCORED: tuple[LossName, ...] = ("cosent", "cosine")


@dataclass(frozen=True, kw_only=True)
class EmbeddingTask(EmbeddingSettings):
    """Embeds texts as sentence-transformers' ``SentenceTransformer`` does.

    Settings: see :class:`EmbeddingSettings`.

    Fitted in training: ``teacher_width``, the number of features of the teacher's vectors, only for
    the loss ``vectors``.
    """

    name: ClassVar[str] = "embedding"

    teacher_width: int = 0

    @property
    def learns_scores(self) -> bool:
        """Whether the loss reads a gold score of each query-document pair."""
        return self.loss in _SCORED

    @property
    def _prefers_vectors(self) -> bool:
        """Whether checkpoints are judged by how close their vectors are to a teacher's."""
        return self.loss == "vectors" and self.metric in (None, *TEACHER_SCORES)

    def compares_vectors(self, examples: Sequence[RetrievalExample]) -> bool:
        """Return whether examples are scored by how close their vectors are to a teacher's.

        True with the loss ``vectors``, unless ``metric`` is a score of documents or no example has
        a teacher's vector; in both of these cases documents are scored.
        """
        return self._prefers_vectors and any(example.vector for example in examples)

    @property
    def main_score(self) -> str:
        """The name of the score that selects the best checkpoint."""
        if not self._prefers_vectors:
            return super().main_score
        return self.metric or (COSINE if self.vector_metric == "cosine" else NEGATIVE_MSE)

    def read(self, record: Record) -> RetrievalExample:
        """Make an example from a row of a file.

        Raises :class:`RowError` for a teacher's vector that is not as wide as in training.
        """
        example = super().read(record)
        if self.teacher_width and example.vector and len(example.vector) != self.teacher_width:
            record.refuse(
                f"{self.vector} has {len(example.vector)} features, those of the training rows "
                f"have {self.teacher_width}; take both from one teacher"
            )
        return example

    def unlabelled(self, example: RetrievalExample) -> str | None:
        """Return why an example lacks the vector or document that the loss needs; else None."""
        if example.vector and self.loss in (None, "vectors"):
            return None
        return self._no_vector() if self.loss == "vectors" else super().unlabelled(example)

    def unscored(
        self, examples: Sequence[RetrievalExample], metric: str | None = None
    ) -> tuple[int, str] | None:
        """Return the index of the first example that cannot be scored, and why; None: all can."""
        wanted = self._prefers_vectors and metric in TEACHER_SCORES
        if not wanted and not self.compares_vectors(examples):
            return super().unscored(examples, metric)
        without = (place for place, example in enumerate(examples) if not example.vector)
        first = next(without, None)
        if first is None:
            return None
        return first, f"{self._no_vector()}; or set task.metric=ndcg or spearman for documents"

    def _no_vector(self) -> str:
        return (
            f"{self.vector} has no teacher's vector; name another column by task.vector, or drop "
            "the row"
        )

    def of_checkpoint(self, directory: str | os.PathLike[str]) -> Self:
        """Return the task with its unset settings taken from a checkpoint's directory.

        These are pooling, normalization, prompts and token limit. A directory without
        ``modules.json`` has mean pooling. Raises :class:`UnsupportedFeatureError` for modules with
        weights after the encoder, and for prompts that the directory leaves out of its pooling.
        """
        recipe = open_embedder(directory).read_recipe(self.pooling or None)
        if recipe.modules or recipe.layers is not None:
            raise UnsupportedFeatureError(
                f"{directory} has modules with weights after its encoder, which are not trained; "
                "begin with its encoder alone"
            )
        given = self.given_prompts()
        prompts = {"query": recipe.prompts.get("query", "")}
        named = document_prompt(recipe.prompts)
        prompts["document"] = recipe.prompts.get(named, "") if named else ""
        if not recipe.include_prompt and any((prompts | given).values()):
            raise UnsupportedFeatureError(
                f"{directory} leaves the prompt's tokens out of its pooling, which is not trained; "
                "set task.prompts to empty texts"
            )
        return replace(
            self,
            pooling=recipe.pooling,
            normalized=recipe.normalized if self.normalized is None else self.normalized,
            prompts=prompts | given,
            max_seq_length=self.max_seq_length or recipe.max_seq_length,
        )

    def digests(self) -> dict[str, str]:
        """Return a digest of the guide, the embedder that filters negatives; {} without one."""
        if self.guide is None:
            return {}
        # The same engine on every machine, because the digest depends on it.
        guide = Embedder.from_pretrained(self.guide, "cpu", engine="torch")
        found = describe_results(guide.kind, guide.kind.resolve())
        found = {name: found[name] for name in ("model", "tokenizer", "options")}
        return {"guide": hashlib.sha256(json.dumps(found, sort_keys=True).encode()).hexdigest()}

    def fit(self, examples: Sequence[RetrievalExample]) -> Self:
        """Return the task with its loss: the configured one, or one chosen by the rows' columns.

        Raises :class:`InputError` for a row that lacks what the loss needs, and for scores that are
        all equal.
        """
        loss = self.loss or _choose_loss(examples)
        check_loss(loss, examples)
        if loss in _SCORED and len({example.scores for example in examples}) < 2:
            raise InputError("all training rows have one score: there is nothing to learn")
        width = len(examples[0].vector) if loss == "vectors" else 0
        return replace(self, loss=loss, teacher_width=width)

    def gold_columns(
        self,
        examples: Sequence[RetrievalExample],
        offsets: npt.NDArray[np.int64],
        order: npt.NDArray[np.int64],
    ) -> dict[str, npt.NDArray[Any] | Ragged]:
        """Return what the loss reads of the examples, by name, as columns of :class:`Items`.

        These are those of :meth:`RetrievalTask.gold_columns` and, with a guide, its vectors of all
        texts. ``offsets``: the index of each item's first text, then the number of texts.
        """
        found = super().gold_columns(examples, offsets, order)
        if self.guide is not None and len(order):
            texts = [e.query for e in examples] + [d for e in examples for d in e.documents]
            vectors = Embedder.from_pretrained(self.guide).encode(texts, on_truncation="ignore")
            found["guide"] = Ragged(vectors[order].astype(np.float32), offsets)
        return found

    def make_model(self, encoder: Encoder) -> TaskModel:
        """Make the task's model from an encoder; no weights are random.

        Raises :class:`InputError` unless the teacher's vectors are as wide as the model's, or as
        the longest prefix of ``matryoshka``.
        """
        width = encoder.spec.width * len(self.pooling or ("mean",))
        if self.teacher_width not in (0, width, max(self.matryoshka, default=0)):
            raise InputError(
                f"the teacher's vectors ({self.vector}) have {self.teacher_width} features, the "
                f"model's {width}: reduce them to as many (by PCA, or by the leading features of a "
                "Matryoshka model), or begin with a wider model"
            )
        return embedders.EmbeddingModel(encoder, self)

    def load_model(self, saved: SavedModel) -> TaskModel:
        """Load the task's model, an embedder's encoder, as a PyTorch module."""
        return embedders.EmbeddingModel.load(saved, self)

    def load_compiled(self, source: CompiledSource) -> CompiledModel:
        """Load the task's model for the compiled engine (C++, on a CPU)."""
        return engines.CompiledModel(source.load_encoder(), self._pooled)

    def _pooled(self, engine: CompiledEngine, batch: TaskBatch) -> dict[str, npt.NDArray[Any]]:
        modes = self.pooling or ("mean",)
        wanted = Pooled(modes=modes, normalized=bool(self.normalized))
        return {"vectors": engine.run(batch.rows, wanted)[0]}

    def decode(
        self, outputs: Outputs, items: Items, examples: Sequence[RetrievalExample]
    ) -> list[RetrievalPrediction[Vector]]:
        """Return the vectors of each example's query and documents, given the model's outputs."""
        del examples
        vectors = outputs["vectors"]
        return [
            RetrievalPrediction(part[0], tuple(part[1:]))
            for part in np.split(vectors, items.offsets[1:-1])
        ]

    def paired(self, predictions: Sequence[RetrievalPrediction[Vector]]) -> list[float]:
        """Return the similarity of each query with its first document."""
        queries = self._compared([found.query for found in predictions])
        documents = self._compared([found.documents[0] for found in predictions])
        similar: list[float] = (queries * documents).sum(1).tolist()
        return similar

    def similarities(
        self, queries: Sequence[Vector], documents: Sequence[Vector]
    ) -> npt.NDArray[np.floating]:
        """Return the similarities of all queries with all documents, [Q, N]."""
        found: npt.NDArray[np.floating] = self._compared(queries) @ self._compared(documents).T
        return found

    def _compared(self, vectors: Sequence[Vector]) -> npt.NDArray[np.float64]:
        stacked: npt.NDArray[np.float64] = np.stack(vectors).astype(np.float64)
        if self.similarity == "cosine":
            stacked /= np.maximum(np.linalg.norm(stacked, axis=1, keepdims=True), 1e-12)
        return stacked

    def score_names(self, examples: Sequence[RetrievalExample]) -> tuple[str, ...]:
        """Return the names of the scores: of closeness to a teacher's vectors, or of retrieval."""
        return TEACHER_SCORES if self.compares_vectors(examples) else super().score_names(examples)

    def score(
        self,
        examples: Sequence[RetrievalExample],
        predictions: Sequence[RetrievalPrediction[Vector]],
    ) -> dict[str, float]:
        """Return how close vectors are to a teacher's; without a teacher, retrieval scores."""
        if not self.compares_vectors(examples):
            return super().score(examples, predictions)
        return _means(self._teacher_scores(examples, predictions))

    def _teacher_scores(
        self,
        examples: Sequence[RetrievalExample],
        predictions: Sequence[RetrievalPrediction[Vector]],
    ) -> dict[str, npt.NDArray[np.float64]]:
        """Return, by score name, how close each row's vector is to its teacher's, float64 [N].

        Where one of the two vectors is shorter, only the leading features of the other are
        compared.
        """
        teachers = np.array([example.vector for example in examples], np.float64)
        vectors = np.stack([found.query for found in predictions]).astype(np.float64)
        width = min(teachers.shape[1], vectors.shape[1])
        teachers, vectors = teachers[:, :width], vectors[:, :width]
        if self.matryoshka:
            # Prefixes are normalized in the Matryoshka loss, too.
            vectors = vectors / _norms(vectors)
        cosines = ((vectors / _norms(vectors)) * (teachers / _norms(teachers))).sum(1)
        errors = np.square(vectors - teachers).mean(1)
        return {COSINE: 100.0 * cosines, NEGATIVE_MSE: -100.0 * errors}

    def groups(self, examples: Sequence[RetrievalExample]) -> npt.NDArray[np.int64]:
        """Return the group of each row; the bootstrap draws whole groups. int64 [N].

        Each row is a group if vectors are compared with a teacher's, else all rows of a query.
        """
        if not self.compares_vectors(examples):
            return super().groups(examples)
        return np.arange(len(examples))

    def resampling(
        self,
        examples: Sequence[RetrievalExample],
        predictions: Sequence[RetrievalPrediction[Vector]],
    ) -> Callable[[npt.NDArray[np.int64]], dict[str, float]]:
        """Return a function from the row indices of a bootstrap sample to the sample's scores.

        They are mean closenesses to a teacher's vectors, or retrieval scores.
        """
        if not self.compares_vectors(examples):
            return super().resampling(examples, predictions)
        scores = self._teacher_scores(examples, predictions)
        return lambda rows: _means({n: found[rows] for n, found in scores.items()})

    def row_scores(
        self,
        examples: Sequence[RetrievalExample],
        predictions: Sequence[RetrievalPrediction[Vector]],
    ) -> npt.NDArray[np.float64]:
        """Return one score per row, float64 [N], for paired significance tests of two models.

        It is the closeness to a teacher's vector, else that of :meth:`RetrievalTask.row_scores`.
        """
        if not self.compares_vectors(examples):
            return super().row_scores(examples, predictions)
        return self._teacher_scores(examples, predictions)[self.main_score]

    def to_record(
        self, example: RetrievalExample, prediction: RetrievalPrediction[Vector]
    ) -> dict[str, Any]:
        """Return the JSON object that ``predict`` writes: similarities, or one text's vector."""
        found = super().to_record(example, prediction)
        return found if example.documents else found | {"vector": prediction.query.tolist()}


def _choose_loss(examples: Sequence[RetrievalExample]) -> LossName:
    if not examples:
        raise InputError("there is no training row")
    if all(is_scored_pair(example) for example in examples):
        return "cosent"
    if are_scored_lists(examples):
        return "divergence"
    if all(example.vector and not example.documents for example in examples):
        return "vectors"
    return "in_batch"


def _means(scores: dict[str, npt.NDArray[np.float64]]) -> dict[str, float]:
    """Return the mean of each score over the rows."""
    return {name: float(values.mean()) for name, values in scores.items()}


def _norms(vectors: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    found: npt.NDArray[np.float64] = np.maximum(
        np.linalg.norm(vectors, axis=1, keepdims=True), 1e-12
    )
    return found
