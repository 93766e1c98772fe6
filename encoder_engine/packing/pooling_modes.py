"""The modes of pooling, named as in sentence-transformers."""

from __future__ import annotations

from typing import Literal, get_args

from encoder_engine.errors import UnknownNameError

__all__ = ["POOLING_MODES", "PoolingMode", "check_mode"]

PoolingMode = Literal["cls", "mean", "max", "mean_sqrt_len_tokens", "weightedmean", "lasttoken"]
POOLING_MODES: tuple[PoolingMode, ...] = get_args(PoolingMode)


def check_mode(mode: str) -> None:
    """Raise :class:`UnknownNameError` for an unknown mode."""
    if mode not in POOLING_MODES:
        raise UnknownNameError(f"no pooling mode {mode!r}; there are {', '.join(POOLING_MODES)}")
