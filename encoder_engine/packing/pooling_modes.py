"""The modes of pooling, named as in sentence-transformers."""

from __future__ import annotations

from typing import Literal, get_args

__all__ = ["POOLING_MODES", "PoolingMode"]

PoolingMode = Literal["cls", "mean", "max", "mean_sqrt_len_tokens", "weightedmean", "lasttoken"]
POOLING_MODES: tuple[PoolingMode, ...] = get_args(PoolingMode)
