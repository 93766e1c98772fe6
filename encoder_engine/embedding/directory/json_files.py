"""Reads the small JSON files of a model directory; every error names the file."""

from __future__ import annotations

import difflib
from typing import TYPE_CHECKING, Any

from encoder_engine import files
from encoder_engine.errors import ConfigError, UnsupportedFeatureError

if TYPE_CHECKING:
    from collections.abc import Collection
    from pathlib import Path

JsonObject = dict[str, Any]


def read_json(path: Path) -> Any:
    """Parse a file. Raises :class:`ConfigError` where it is missing, not UTF-8, or not JSON."""
    return files.read_json(path, ConfigError)


def read_object(path: Path) -> JsonObject:
    """Parse a file that must hold one JSON object."""
    value = read_json(path)
    if not isinstance(value, dict):
        raise ConfigError(f"{path} must hold a JSON object, got {type(value).__name__}")
    return value


def refuse_unknown_keys(path: Path, keys: Collection[str], known: Collection[str]) -> None:
    """Raise :class:`UnsupportedFeatureError` for keys that are not among ``known``."""
    for key in sorted(set(keys) - set(known)):
        nearest = difflib.get_close_matches(key, known, n=1)
        hint = f"; did you mean {nearest[0]!r}?" if nearest else ""
        raise UnsupportedFeatureError(
            f"{path} sets {key!r}, which is not understood and might change the vectors{hint}"
            f" Known keys: {', '.join(sorted(known))}"
        )


def optional_count(path: Path, config: JsonObject, key: str) -> int | None:
    """Read a positive whole number, or None where the key is absent or null."""
    value = config.get(key)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise ConfigError(f"{path}: {key} must be a positive whole number, got {value!r}")
    return value


def flag(path: Path, config: JsonObject, key: str, *, default: bool) -> bool:
    """Read true or false, or the default where the key is absent."""
    value = config.get(key, default)
    if not isinstance(value, bool):
        raise ConfigError(f"{path}: {key} must be true or false, got {value!r}")
    return value
