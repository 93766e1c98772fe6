"""Names the distances between vectors that losses and settings know."""

from __future__ import annotations

from typing import Literal

__all__ = ["Distance", "VectorMetric"]

Distance = Literal["euclidean", "cosine", "manhattan"]
VectorMetric = Literal["mse", "l2", "cosine"]
