"""Reads values of recipes from YAML and JSON files, Python functions and ``key=value`` strings."""

from __future__ import annotations

import importlib.util
import traceback
from collections.abc import Mapping
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any

from encoder_engine.errors import ConfigError, EncoderEngineError, MissingDependencyError
from encoder_engine.files import read_text
from encoder_engine.json_values import JsonValue

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

__all__ = ["RecipeValue", "call_function", "read_values", "set_values"]


def set_values(values: dict[str, Any], settings: Sequence[str]) -> dict[str, Any]:
    """Set ``section.key=value`` strings in nested mappings, in place; values are parsed as YAML."""
    for setting in settings:
        where, equals, text = setting.partition("=")
        if not equals:
            raise ConfigError(
                f"{setting!r} is not a setting; expected one such as batch.tokens=65536"
            )
        *sections, last = where.split(".")
        inner = values
        for section in sections:
            inner = inner.setdefault(section, {})
            if not isinstance(inner, dict):
                raise ConfigError(f"{setting!r}: {section} is a value, not a section")
        inner[last] = _parsed(text, setting)
    return values


def call_function(path: Path, name: str) -> Any:
    """Call a function of a Python file without arguments, and return its result.

    Raises :class:`ConfigError`, also for an exception of the file's code.
    """
    spec = importlib.util.spec_from_file_location(path.stem, path)
    if spec is None or spec.loader is None or not path.is_file():
        raise ConfigError(f"{path} is no Python file")
    module = importlib.util.module_from_spec(spec)
    with _blaming(path):
        spec.loader.exec_module(module)
    function = getattr(module, name, None)
    if function is None:
        raise ConfigError(f"{path} has no function {name!r}")
    with _blaming(path):
        return function()


@contextmanager
def _blaming(path: Path) -> Iterator[None]:
    """Within this context, raise errors of the file ``path`` as ConfigError, with their line."""
    try:
        yield
    except EncoderEngineError:
        raise
    except Exception as error:
        lines = [
            f.lineno for f in traceback.extract_tb(error.__traceback__) if f.filename == str(path)
        ]
        where = f", line {lines[-1]}" if lines else ""
        raise ConfigError(f"{path}{where}: {type(error).__name__}: {error}") from error


def read_values(path: Path) -> dict[str, Any]:
    """Read a YAML or JSON file of a mapping per section. Raises :class:`ConfigError`."""
    values = _parsed(read_text(path, ConfigError), str(path))
    if not isinstance(values, dict):
        raise ConfigError(f"{path} must be a mapping of sections to values, got {values!r:.60}")
    return values


def _parsed(text: str, where: str) -> Any:
    yaml = _yaml()
    try:
        return yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise ConfigError(f"{where} is no YAML: {error}") from error


def _yaml() -> Any:
    try:
        import yaml
    except ImportError:
        raise MissingDependencyError("reading settings", library="PyYAML", extra="train") from None
    return yaml


class RecipeValue(JsonValue):
    """A JSON value of a recipe; accepts numbers that YAML parsed as strings."""

    def object(self) -> dict[str, Any]:
        """Return the value as a dict; raise an error for a value that is no mapping."""
        return dict(self.value) if isinstance(self.value, Mapping) else super().object()

    def number(self, *arguments: Any, **limits: Any) -> float:
        """Return the value as a number; also one that YAML reads as text, such as "1e-4"."""
        if isinstance(self.value, str):
            with suppress(ValueError):
                return self.at(float(self.value), "").number(*arguments, **limits)
        return super().number(*arguments, **limits)
