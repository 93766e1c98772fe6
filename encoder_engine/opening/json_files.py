"""Reads the small JSON files of a model directory."""

from __future__ import annotations

from typing import TYPE_CHECKING

from encoder_engine import json_values
from encoder_engine.errors import ConfigError, UnsupportedFeatureError

if TYPE_CHECKING:
    from pathlib import Path

    from encoder_engine.json_values import JsonValue


def read_value(path: Path) -> JsonValue:
    """Parse a JSON file; errors are ConfigError, and UnsupportedFeatureError for unknown keys."""
    return json_values.read_value(path, ConfigError, unknown=UnsupportedFeatureError)
