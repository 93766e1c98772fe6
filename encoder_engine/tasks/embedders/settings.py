"""The settings of the embedding task, as its losses and its model read them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal, get_args

import numpy as np

from encoder_engine.errors import ConfigError
from encoder_engine.objectives.vectors.pairs import Distance  # noqa: TC001 - a setting
from encoder_engine.objectives.vectors.teachers import VectorMetric  # noqa: TC001 - a setting
from encoder_engine.packing.pooling_modes import PoolingMode  # noqa: TC001 - a setting
from encoder_engine.tasks.embedders.retrieval_task import RetrievalTask

__all__ = ["LOSSES", "EmbeddingSettings", "LossName"]

LossName = Literal["in_batch", "cosent", "cosine", "triplet", "margin", "divergence", "vectors"]
LOSSES: tuple[LossName, ...] = get_args(LossName)


@dataclass(frozen=True, kw_only=True)
class EmbeddingSettings(RetrievalTask[Any]):
    """The settings of the embedding task.

    ``loss``: ``in_batch`` negatives, ``cosent``, ``cosine``, ``triplet``, ``margin`` (MarginMSE),
    ``divergence`` (KL) or ``vectors`` (a teacher's); None: chosen by the columns of the rows.
    ``scale``, ``symmetric``: of ``in_batch`` and ``cosent``; symmetric: documents are compared
    with all queries as well.
    ``similarity``: ``"cosine"`` or ``"dot"``, of in-batch negatives and of scores.
    ``distance``, ``margin``: of ``triplet``; ``temperature``: of ``divergence``;
    ``vector_metric``: of ``vectors``.
    ``matryoshka``: the lengths of vector prefixes that are trained too, with
    ``matryoshka_weights``.
    ``guide``: an embedder that filters false negatives (GIST), with ``guide_margin``.
    ``pooling``, ``normalized``: empty and None: the checkpoint's.
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
        for name in ("scale", "temperature"):
            if not 0.0 < getattr(self, name) < np.inf:
                raise ConfigError(
                    f"task.{name} must be above 0 and finite, got {getattr(self, name)}"
                )
        if self.similarity not in ("cosine", "dot"):
            raise ConfigError(f"task.similarity must be cosine or dot, got {self.similarity!r}")
        if self.guide is not None and self.loss not in (None, "in_batch"):
            raise ConfigError(f"task.guide filters in-batch negatives; task.loss is {self.loss}")
