"""The task of late interaction: a vector per token, compared by MaxSim (ColBERT)."""

from __future__ import annotations

import string
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np

from encoder_engine.dataclass import dataclass
from encoder_engine.engine.outputs import TokenStates
from encoder_engine.errors import ConfigError, UnsupportedFeatureError
from encoder_engine.opening.expansion import QueryExpansion
from encoder_engine.opening.late_interaction import (
    LateInteraction,
    expansion_token,
    is_stanford,
    open_late_interaction,
    register_markers,
    token_ids,
)
from encoder_engine.opening.modules import MODULES, read_module_kinds
from encoder_engine.packing.module_stack import DenseModule, ModuleStack
from encoder_engine.packing.token_rows import TokenRows
from encoder_engine.tasks import embedders, engines
from encoder_engine.tasks.embedders.examples import COUNTED, NUM_VECTORS, UNATTENDED
from encoder_engine.tasks.embedders.retrieval_task import RetrievalPrediction
from encoder_engine.tasks.embedders.settings import LateInteractionSettings, stated_prompts
from encoder_engine.tasks.items import Ragged
from encoder_engine.vectors.token_vectors import TokenVectors, max_similarity

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
    from encoder_engine.tasks.task import Outputs, Windows
    from encoder_engine.text import Encoding, Tokenizer

    Vectors = npt.NDArray[np.float32]

__all__ = ["LateInteractionTask"]

DIMENSION, QUERY_LENGTH = 128, 32


@dataclass(frozen=True, kw_only=True)
class LateInteractionTask(LateInteractionSettings):
    """Embeds tokens as sentence-transformers' ``MultiVectorEncoder`` does.

    Settings: see :class:`LateInteractionSettings`. The checkpoint is an encoder, or a model of late
    interaction, whose projection is trained further.
    """

    name: ClassVar[str] = "late-interaction"

    def of_checkpoint(self, directory: str | os.PathLike[str]) -> Self:
        """Return the task with unset settings taken from the checkpoint, or from the defaults.

        Raises :class:`UnsupportedFeatureError` for a late-interaction model with modules or
        settings that cannot be trained here.
        """
        found = _open(directory)
        stated = _DEFAULTS if found is None else _stated(found, directory)
        return replace(
            self,
            prompts=stated["prompts"] | self.given_prompts(),
            max_seq_length=self.max_seq_length or stated["max_seq_length"],
            dimension=self.dimension or stated["dimension"],
            query_length=self.query_length or stated["query_length"],
            **{
                name: stated[name] if getattr(self, name) is None else getattr(self, name)
                for name in (
                    *("document_length", "expand_queries"),
                    *("attend_expansion", "skipped_words"),
                )
            },
        )

    def own_tokenizer(self, tokenizer: Tokenizer) -> Tokenizer:
        """Return the tokenizer with the markers of prompts (``[unused0]``) as special tokens."""
        return register_markers(tokenizer, self.prompts)

    def limit(self, kind: str, windows: Windows) -> int:
        """Return the most tokens of a text; ``kind``: ``"query"`` or ``"document"``."""
        own = self.query_length if kind == "query" else self.document_length
        most = super().limit(kind, windows)
        return most if own is None else min(own, windows.max_length)

    def rows_of(self, kind: str, encoding: Encoding, tokenizer: Tokenizer) -> TokenRows:
        """Return the token rows that the model computes, given tokenized queries or documents.

        With ``expand_queries``, queries are padded with mask tokens up to ``query_length``.
        """
        if kind != "query" or not self.expand_queries:
            return TokenRows.of(encoding)
        number = expansion_token(tokenizer)
        if number is None:
            raise ConfigError("the tokenizer has no mask token, by which queries are padded")
        expansion = QueryExpansion(
            length=self.query_length, token_id=number, attended=bool(self.attend_expansion)
        )
        return expansion.expand(encoding)

    def encode(
        self, examples: Sequence[RetrievalExample], tokenizer: Tokenizer, windows: Windows
    ) -> Items:
        """Tokenize examples to items as :meth:`RetrievalTask.encode`, with three more columns.

        They say which tokens MaxSim compares, how many of them each text has, and how many padding
        tokens of a query the others cannot attend to. Raises :class:`ConfigError` if queries are
        padded to more tokens than ``windows.max_length``.
        """
        if self.expand_queries and self.query_length > windows.max_length:
            raise ConfigError(
                f"queries are padded to {self.query_length} tokens, data.max_length is "
                f"{windows.max_length}; raise it, or lower task.query_length"
            )
        items = super().encode(examples, tokenizer, windows)
        rows = items.rows
        is_document = np.ones(len(rows), bool)
        is_document[items.offsets[:-1]] = False
        skipped = np.array(sorted(token_ids(self.skipped_words or (), tokenizer)), np.int64)
        left_out = np.repeat(is_document, rows.lengths) & np.isin(rows.ids, skipped)
        before = np.concatenate([[0], np.cumsum(~left_out)])
        ends = rows.cu_seqlens
        trailing = np.zeros(len(rows)) if rows.unattended is None else rows.unattended
        columns = {
            COUNTED: Ragged((~left_out).astype(np.uint8), items.token_offsets),
            NUM_VECTORS: Ragged(np.diff(before[ends]).astype(np.int64), items.offsets),
            UNATTENDED: Ragged(trailing.astype(np.int64), items.offsets),
        }
        return replace(items, columns={**items.columns, **columns})

    def feature_offsets(self, items: Items) -> npt.NDArray[np.int64]:
        """Return where each item's compared tokens begin in the cached outputs, int64 [N + 1]."""
        ends: npt.NDArray[np.int64] = np.r_[0, np.cumsum(items.ragged(NUM_VECTORS).values)]
        return ends[items.offsets]

    def make_model(self, encoder: Encoder) -> TaskModel:
        """Make the task's model; its projection is random until :meth:`begin_with`."""
        return embedders.LateInteractionModel(encoder, self)

    def begin_with(self, model: TaskModel, checkpoint: str | os.PathLike[str]) -> None:
        """Load the checkpoint's projection into the model, if it fits the task's ``dimension``."""
        assert isinstance(model, embedders.LateInteractionModel)
        found = _open(checkpoint)
        if found is not None:
            weight_NK = _projection(found)
            if weight_NK.shape == (self.dimension, model.encoder.spec.width):
                model.project_by(weight_NK)

    def load_model(self, saved: SavedModel) -> TaskModel:
        """Load the task's model, encoder and projection, as a PyTorch module."""
        model = embedders.LateInteractionModel.load(saved, self)
        model.project_by(self._saved_projection(saved.directory, model.encoder.spec.width))
        return model

    def load_compiled(self, source: CompiledSource) -> CompiledModel:
        """Load the task's model for the compiled engine (C++, on a CPU)."""
        engine = source.load_encoder()
        width = engine.spec.width
        if source.has_adapter:
            shapes = {"weight": (self.dimension, width)}
            weight_NK = source.read_beside("", "projection", shapes)["weight"]
        else:
            weight_NK = self._saved_projection(source.directory, width)
        stack = ModuleStack((DenseModule(weight_NK=weight_NK.astype(np.float32)),))

        def compute(engine: CompiledEngine, batch: TaskBatch) -> dict[str, npt.NDArray[Any]]:
            rows = batch.rows
            if rows.unattended is not None and not rows.unattended.any():
                rows = replace(rows, unattended=None)
            (vectors,) = engine.run(rows, TokenStates(modules=stack, normalized=True))
            return {"vectors": vectors[batch.targets[COUNTED] > 0]}

        return engines.CompiledModel(engine, compute)

    def _saved_projection(self, directory: str | os.PathLike[str], width: int) -> Vectors:
        weight_NK = _projection(open_late_interaction(directory))
        if weight_NK.shape != (self.dimension, width):
            raise ConfigError(
                f"the projection is {list(weight_NK.shape)}, task.json expects "
                f"{[self.dimension, width]}; the files belong to different models"
            )
        return weight_NK

    def decode(
        self, outputs: Outputs, items: Items, examples: Sequence[RetrievalExample]
    ) -> list[RetrievalPrediction[Vectors]]:
        """Return the token vectors of each example's query and documents, from the outputs."""
        del examples
        ends = np.cumsum(items.ragged(NUM_VECTORS).values)
        texts = np.split(outputs["vectors"].astype(np.float32), ends[:-1])
        return [
            RetrievalPrediction(texts[start], tuple(texts[start + 1 : stop]))
            for start, stop in zip(items.offsets[:-1], items.offsets[1:], strict=True)
        ]

    def paired(self, predictions: Sequence[RetrievalPrediction[Vectors]]) -> list[float]:
        """Return MaxSim of each query with its first document."""
        return [
            float(self.similarities([one.query], one.documents[:1])[0, 0]) for one in predictions
        ]

    def similarities(
        self, queries: Sequence[Vectors], documents: Sequence[Vectors]
    ) -> npt.NDArray[np.floating]:
        """Return MaxSim of all queries with all documents, [Q, N]."""
        return max_similarity(_packed(queries), _packed(documents))

    def to_record(
        self, example: RetrievalExample, prediction: RetrievalPrediction[Vectors]
    ) -> dict[str, Any]:
        """Return the JSON object that ``predict`` writes: similarities, or one text's vectors."""
        found = super().to_record(example, prediction)
        return found if example.documents else found | {"vectors": prediction.query.tolist()}


_DEFAULTS: dict[str, Any] = {
    "prompts": {"query": "", "document": ""},
    "max_seq_length": None,
    "dimension": DIMENSION,
    "query_length": QUERY_LENGTH,
    "document_length": None,
    "expand_queries": False,
    "attend_expansion": False,
    "skipped_words": tuple(string.punctuation),
}


def _open(directory: str | os.PathLike[str]) -> LateInteraction | None:
    """Open a late-interaction model; None: the directory has a model of another kind."""
    folder = Path(directory)
    if (folder / MODULES).is_file():
        kinds = read_module_kinds(folder)
        if "Pooling" in kinds or kinds == ["Transformer"]:
            return None
    elif not is_stanford(folder):
        return None
    return open_late_interaction(folder)


def _stated(found: LateInteraction, directory: str | os.PathLike[str]) -> dict[str, Any]:
    """Return a late-interaction model's settings, by the names of the task's settings.

    Raises :class:`UnsupportedFeatureError` for settings that cannot be trained.
    """
    expansion, mask = found.expansion, found.mask
    dense = found.modules.modules[0] if len(found.modules.modules) == 1 else None
    is_plain = (
        isinstance(dense, DenseModule)
        and dense.bias_N is None
        and dense.residual is None
        and dense.activation == "identity"
    )
    for problem, what in (
        (not is_plain, "other modules than one projection without bias"),
        (not found.normalized, "vectors that are not normalized"),
        (expansion is not None and not expansion.fixed, "queries that are padded, but not cut"),
        (bool(mask.kept) or (mask.skipped and mask.tasks != {"document"}), "another token mask"),
    ):
        if problem:
            raise UnsupportedFeatureError(
                f"{directory} has {what}, which is not trained; begin with its encoder alone"
            )
    assert isinstance(dense, DenseModule)
    names = (found.tokenizer.id_to_token(number) for number in sorted(mask.skipped))
    length = found.query_length if expansion is None else expansion.length
    most = found.opened.max_seq_length
    return {
        "prompts": stated_prompts(found.opened.settings.prompts),
        "max_seq_length": most,
        "dimension": len(dense.weight_NK),
        "query_length": length or most or QUERY_LENGTH,
        "document_length": found.document_length,
        "expand_queries": expansion is not None,
        "attend_expansion": expansion is not None and expansion.attended,
        "skipped_words": tuple(name for name in names if name is not None),
    }


def _projection(found: LateInteraction) -> Vectors:
    """Return a late-interaction model's projection weight, [output features, hidden size]."""
    weight_NK: Vectors = np.array(found.modules.modules[0].arrays()["weight"])
    return weight_NK


def _packed(texts: Sequence[Vectors]) -> TokenVectors:
    """Concatenate the token vectors of texts into :class:`TokenVectors`, without token ids."""
    vectors = np.concatenate(list(texts))
    return TokenVectors(
        vectors=vectors,
        ids=np.zeros(len(vectors), np.int32),
        cu_seqlens=np.cumsum([0, *map(len, texts)], dtype=np.int64),
    )
