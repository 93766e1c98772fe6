"""The settings of a SpladePooling module."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from encoder_engine.opening.json_files import read_value

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["read_sparse_pooling"]

_POOLING_KEYS = (
    "pooling_strategy",
    "activation_function",
    "embedding_dimension",
    "word_embedding_dimension",
)


def read_sparse_pooling(folder: Path) -> dict[str, Any]:
    """Return the pooling and the activation that a module states."""
    config = read_value(folder / "config.json")
    config.only_keys(_POOLING_KEYS)
    names = {"pooling_strategy": "pooling", "activation_function": "activation"}
    return {names[key]: value for key, value in config.object().items() if key in names}
