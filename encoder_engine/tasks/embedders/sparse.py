"""The task of sparse embedding (SPLADE): a text gets a weight for each token of the vocabulary."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np

from encoder_engine.dataclass import dataclass
from encoder_engine.engine.outputs import VocabularyWeights
from encoder_engine.errors import UnsupportedFeatureError
from encoder_engine.opening.json_files import read_value
from encoder_engine.opening.modules import SPARSE_ORDER
from encoder_engine.opening.opening import ModelDirectory, open_directory
from encoder_engine.tasks import embedders, engines
from encoder_engine.tasks.embedders.retrieval_task import RetrievalPrediction
from encoder_engine.tasks.embedders.settings import SparseSettings, stated_prompts
from encoder_engine.vectors.sparse_vectors import SparseVectors, join_sparse

if TYPE_CHECKING:
    import os
    from collections.abc import Sequence

    import numpy.typing as npt

    from encoder_engine.engine.compiled import CompiledEngine
    from encoder_engine.models.encoder import Encoder
    from encoder_engine.tasks.embedders.examples import RetrievalExample
    from encoder_engine.tasks.engines.compiled import CompiledModel
    from encoder_engine.tasks.engines.source import CompiledSource
    from encoder_engine.tasks.items import Items, SavedModel, TaskBatch
    from encoder_engine.tasks.models.task_model import TaskModel
    from encoder_engine.tasks.task import Outputs

__all__ = ["SparseTask"]

_POOLING = {"pooling_strategy": "max", "activation_function": "relu"}


@dataclass(frozen=True, kw_only=True)
class SparseTask(SparseSettings):
    """Embeds texts as sentence-transformers' ``SparseEncoder`` with SPLADE's pooling does.

    Settings: see :class:`SparseSettings`. The checkpoint is a masked language model.
    """

    name: ClassVar[str] = "sparse"

    def of_checkpoint(self, directory: str | os.PathLike[str]) -> Self:
        """Return the task, its unset prompts and token limit taken from a checkpoint's directory.

        Raises :class:`UnsupportedFeatureError` for other modules than a masked language model and
        the maximum of ``log(1 + relu(logits))``, and for modules that only queries have.
        """
        opened = _open(directory)
        if opened.routes:
            raise UnsupportedFeatureError(
                f"{directory} has modules of their own for queries, which are not trained; begin "
                "with the model of its documents"
            )
        for module in opened.modules[1:]:
            stated = read_value(module.folder / "config.json").object()
            other = {k: stated[k] for k, v in _POOLING.items() if stated.get(k, v) != v}
            if other:
                raise UnsupportedFeatureError(f"{module.folder} states {other}: not trained")
        return replace(
            self,
            prompts=stated_prompts(opened.settings.prompts) | self.given_prompts(),
            max_seq_length=self.max_seq_length or opened.max_seq_length,
        )

    def feature_offsets(self, items: Items) -> npt.NDArray[np.int64]:
        """Return where each item's tokens begin in the cached encoder outputs, int64 [N + 1]."""
        return items.token_offsets

    def make_model(self, encoder: Encoder) -> TaskModel:
        """Make the task's model; its head is random until :meth:`begin_with` loads one."""
        return embedders.SparseModel(encoder, self)

    def begin_with(self, model: TaskModel, checkpoint: str | os.PathLike[str]) -> None:
        """Load the checkpoint's head for masked tokens; raises :class:`ConfigError` without one."""
        assert isinstance(model, embedders.SparseModel)
        model.begin_with(checkpoint)

    def load_model(self, saved: SavedModel) -> TaskModel:
        """Load the task's model, a masked language model, as a PyTorch module."""
        return embedders.SparseModel.load(saved, self)

    def load_compiled(self, source: CompiledSource) -> CompiledModel:
        """Load the task's model for the compiled engine (C++, on a CPU)."""
        return engines.CompiledModel(source.load_head("masked-lm", None), _weights)

    def decode(
        self, outputs: Outputs, items: Items, examples: Sequence[RetrievalExample]
    ) -> list[RetrievalPrediction[SparseVectors]]:
        """Return each example's query and documents as sparse vectors of the weights above 0."""
        del examples
        rows = [_sparse(vector) for vector in outputs["vectors"]]
        return [
            RetrievalPrediction(rows[start], tuple(rows[start + 1 : stop]))
            for start, stop in zip(items.offsets[:-1], items.offsets[1:], strict=True)
        ]

    def paired(self, predictions: Sequence[RetrievalPrediction[SparseVectors]]) -> list[float]:
        """Return the inner product of each query with its first document."""
        return [float(one.query.similarity(one.documents[0])[0, 0]) for one in predictions]

    def similarities(
        self, queries: Sequence[SparseVectors], documents: Sequence[SparseVectors]
    ) -> npt.NDArray[np.floating]:
        """Return the inner products of all queries with all documents, [Q, N]."""
        width = queries[0].dimension
        return join_sparse(queries, width).similarity(join_sparse(documents, width))

    def to_record(
        self, example: RetrievalExample, prediction: RetrievalPrediction[SparseVectors]
    ) -> dict[str, Any]:
        """Return the JSON object that ``predict`` writes: similarities, or one text's weights."""
        found = super().to_record(example, prediction)
        if example.documents:
            return found
        vector = prediction.query
        return found | {"indices": vector.indices.tolist(), "values": vector.values.tolist()}


def _weights(engine: CompiledEngine, batch: TaskBatch) -> dict[str, npt.NDArray[Any]]:
    return {"vectors": engine.run(batch.rows, VocabularyWeights())[0]}


def _open(directory: str | os.PathLike[str]) -> ModelDirectory:
    return open_directory(
        *(directory, "SparseEncoder", SPARSE_ORDER), task="fill-mask", reads="logits"
    )


def _sparse(vector_V: npt.NDArray[Any]) -> SparseVectors:
    indices = np.flatnonzero(vector_V).astype(np.int32)
    return SparseVectors(
        indptr=np.array([0, len(indices)], np.int64),
        indices=indices,
        values=vector_V[indices].astype(np.float32),
        dimension=len(vector_V),
    )
