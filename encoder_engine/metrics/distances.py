"""The names of the distances between vectors that losses and settings accept."""

from __future__ import annotations

from typing import Literal

__all__ = ["Distance", "VectorMetric"]

Distance = Literal["euclidean", "cosine", "manhattan"]
VectorMetric = Literal["mse", "l2", "cosine"]
