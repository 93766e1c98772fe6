"""The settings of the embedding, late-interaction and sparse tasks."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, Literal, Self

import numpy as np
import numpy.typing as npt

from encoder_engine.dataclass import dataclass
from encoder_engine.errors import ConfigError, InputError
from encoder_engine.kinds.options import document_prompt
from encoder_engine.metrics.distances import Distance, VectorMetric  # noqa: TC001 - settings
from encoder_engine.packing.pooling_modes import PoolingMode  # noqa: TC001 - a setting
from encoder_engine.tasks.embedders.examples import are_scored_lists, check_loss
from encoder_engine.tasks.embedders.retrieval_task import RetrievalTask, Vectors
from encoder_engine.vectors.sparse_vectors import SparseVectors

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from encoder_engine.tasks.embedders.examples import RetrievalExample

__all__ = [
    "EmbeddingSettings",
    "LateInteractionSettings",
    "ListLoss",
    "ListSettings",
    "LossName",
    "SparseSettings",
    "stated_prompts",
]

LossName = Literal["in_batch", "cosent", "cosine", "triplet", "margin", "divergence", "vectors"]
# The losses of embedders whose vectors are not compared by cosines.
ListLoss = Literal["in_batch", "margin", "divergence"]


@dataclass(frozen=True, kw_only=True)
class EmbeddingSettings(RetrievalTask[Any]):
    """The settings of the embedding task.

    ``loss``: ``in_batch`` negatives, ``cosent``, ``cosine``, ``triplet``, ``margin`` (MarginMSE),
    ``divergence`` (KL) or ``vectors`` (regression on a teacher's vectors); None: chosen by the
    columns of the rows.
    ``scale``: the factor of similarities in ``in_batch`` and ``cosent``. ``symmetric``: in
    ``in_batch``, documents are compared with all queries of the batch as well.
    ``similarity``: ``"cosine"`` or ``"dot"``, in ``in_batch`` and in evaluation.
    ``distance``, ``margin``: used by ``triplet``; ``temperature``: by ``divergence``;
    ``vector_metric``: by ``vectors``.
    ``matryoshka``: the lengths of vector prefixes that are trained too, with
    ``matryoshka_weights``.
    ``guide``: an embedder that filters false negatives (GIST), with ``guide_margin``.
    ``pooling``, ``normalized``: how vectors are made; empty and None: as the checkpoint does.
    """

    loss: LossName | None = None
    scale: float = 20.0
    symmetric: bool = False
    similarity: str = "cosine"
    distance: Distance = "euclidean"
    margin: float = 5.0
    temperature: float = 1.0
    vector_metric: VectorMetric = "cosine"
    matryoshka: tuple[int, ...] = ()
    matryoshka_weights: tuple[float, ...] = ()
    guide: str | None = None
    guide_margin: float = 0.0
    pooling: tuple[PoolingMode, ...] = ()
    normalized: bool | None = None

    def __post_init__(self) -> None:
        _check_positive(self, "scale", "temperature")
        if self.similarity not in ("cosine", "dot"):
            raise ConfigError(f"task.similarity must be cosine or dot, got {self.similarity!r}")
        if self.guide is not None and self.loss not in (None, "in_batch"):
            raise ConfigError(f"task.guide filters in-batch negatives; task.loss is {self.loss}")


@dataclass(frozen=True, kw_only=True)
class ListSettings(RetrievalTask[Vectors]):
    """The settings that the late-interaction and the sparse task share.

    ``loss``: ``in_batch`` negatives, or distillation of a cross-encoder's scores by ``margin``
    (MarginMSE) or ``divergence`` (KL); None: ``divergence`` where every row has several documents
    with scores, else ``in_batch``.
    ``scale``: the factor of similarities in ``in_batch``; ``temperature``: used by ``divergence``.
    """

    loss: ListLoss | None = None
    scale: float = 1.0
    temperature: float = 1.0

    def __post_init__(self) -> None:
        _check_positive(self, "scale", "temperature")

    @property
    def learns_scores(self) -> bool:
        """Return False: no loss of these tasks reads scores of single pairs."""
        return False

    def fit(self, examples: Sequence[RetrievalExample]) -> Self:
        """Return the task with its loss: the configured one, or one chosen by the rows' columns.

        Raises :class:`InputError` for no row, and for rows that lack what the loss needs.
        """
        if not examples:
            raise InputError("there is no training row")
        loss = self.loss or ("divergence" if are_scored_lists(examples) else "in_batch")
        check_loss(loss, examples)
        return replace(self, loss=loss)


@dataclass(frozen=True, kw_only=True)
class LateInteractionSettings(ListSettings[npt.NDArray[np.float32]]):
    """The settings of the late-interaction task.

    A setting that is None or 0 is taken from the checkpoint if that is a late-interaction model,
    else from the default in brackets.
    ``dimension``: features of a token's vector (128).
    ``query_length``: the most tokens of a query (32); ``document_length``: of a document (the
    encoder's limit).
    ``expand_queries``: pad queries with mask tokens up to ``query_length`` (False);
    ``attend_expansion``: other tokens attend to these mask tokens (False).
    ``skipped_words``: tokens of documents that get no vector (ASCII punctuation).
    """

    dimension: int = 0
    query_length: int = 0
    document_length: int | None = None
    expand_queries: bool | None = None
    attend_expansion: bool | None = None
    skipped_words: tuple[str, ...] | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("dimension", "query_length"):
            if getattr(self, name) < 0:
                raise ConfigError(f"task.{name} must be at least 1, got {getattr(self, name)}")


@dataclass(frozen=True, kw_only=True)
class SparseSettings(ListSettings[SparseVectors]):
    """The settings of the sparse task.

    ``query_flops``, ``document_flops``: the weights of the FLOPS penalty on the vectors of queries
    and of documents (Formal et al. 2021); 0: no penalty.
    """

    query_flops: float = 5e-5
    document_flops: float = 3e-5

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("query_flops", "document_flops"):
            if not 0.0 <= getattr(self, name) < np.inf:
                raise ConfigError(
                    f"task.{name} must be at least 0 and finite, got {getattr(self, name)}"
                )


def _check_positive(settings: object, *names: str) -> None:
    for name in names:
        if not 0.0 < getattr(settings, name) < np.inf:
            raise ConfigError(
                f"task.{name} must be above 0 and finite, got {getattr(settings, name)}"
            )


def stated_prompts(prompts: Mapping[str, str]) -> dict[str, str]:
    """Return the prompts of a model's directory for ``query`` and ``document``; "" without one."""
    named = document_prompt(prompts)
    return {
        "query": prompts.get("query") or "",
        "document": (prompts.get(named) or "") if named else "",
    }
