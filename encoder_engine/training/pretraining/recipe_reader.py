"""Reads recipes from files, names and single settings; refuses unknown keys."""

from __future__ import annotations

import importlib.util
import traceback
from collections.abc import Mapping
from contextlib import contextmanager, suppress
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from encoder_engine.errors import ConfigError, EncoderEngineError, MissingDependencyError
from encoder_engine.files import read_text
from encoder_engine.json_values import JsonSource, JsonValue, nearest
from encoder_engine.renamed import warn_of_former_name
from encoder_engine.training.pretraining.recipes import RECIPES
from encoder_engine.training.recipe import TrainingRecipe

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

__all__ = [
    "current_keys",
    "find_recipe",
    "read_recipe",
    "recipe_from_values",
    "recipe_to_values",
    "with_settings",
]

# Keys of recipe files that were renamed, by section: {section: {former key: current key}}.
FORMER_KEYS = {"objectives": {"rate": "mask_probability"}}


def find_recipe(
    name: str,
    settings: Sequence[str] = (),
    *,
    corpus: str | None = None,
    checkpoint: str | None = None,
) -> TrainingRecipe:
    """Return a recipe by name, from a YAML or JSON file, or from ``file.py:function``.

    ``settings``: changes, such as ``batch.tokens=65536``.
    ``corpus``: replaces ``data.corpus`` of the recipe.
    ``checkpoint``: replaces the recipe's model by one to continue from.
    Raises :class:`ConfigError`.
    """
    path, colon, function = name.rpartition(":")
    if colon and path.endswith(".py"):
        values = recipe_to_values(_call(Path(path), function))
    elif name in RECIPES:
        values = recipe_to_values(RECIPES[name]())
    elif Path(name).suffix in (".yaml", ".yml", ".json"):
        values = _read_values(Path(name))
    else:
        raise ConfigError(
            f"there is no recipe {name!r}{nearest(name, RECIPES)}; recipes are "
            f"{', '.join(RECIPES)}, a .yaml file, and file.py:function"
        )
    values = with_settings(_with_current_keys(values), settings)
    data = values.get("data") or {}
    # A value that is no mapping is refused below, by its name.
    if corpus is not None and isinstance(data, Mapping):
        values["data"] = {**data, "corpus": corpus}
    if checkpoint is not None:
        values["model"] = {"checkpoint": checkpoint}
    return recipe_from_values(values)


def read_recipe(path: Path) -> TrainingRecipe:
    """Read a YAML or JSON file; raises :class:`ConfigError` that names an unknown key."""
    return recipe_from_values(_read_values(path))


def recipe_to_values(recipe: TrainingRecipe) -> dict[str, Any]:
    """Return a recipe as nested mappings."""
    return asdict(recipe)


def recipe_from_values(values: Any) -> TrainingRecipe:
    """Make a recipe from nested mappings; missing keys get their defaults.

    A former key is read with a DeprecationWarning that names the current one.
    """
    source = JsonSource(name="", error=ConfigError, mend="")
    made: TrainingRecipe = _RecipeValue(_with_current_keys(values), source, "recipe").read_as(
        TrainingRecipe
    )
    return made


def _with_current_keys(values: Any) -> Any:
    """Replace former keys as :func:`current_keys` does, with a warning for each."""
    for section, key, current in _former_keys_in(values):
        warn_of_former_name(f"{section}.{key}", f"{section}.{current}")
    return current_keys(values)


def current_keys(values: Any) -> Any:
    """Return nested mappings with former keys replaced by current ones, without a warning.

    Raises :class:`ConfigError` where both the former and the current key are given.
    """
    for section, key, current in _former_keys_in(values):
        inner = dict(values[section])
        if current in inner:
            raise ConfigError(
                f"{section} has {key} and {current}, which are one setting; leave out {key}"
            )
        inner[current] = inner.pop(key)
        values = {**values, section: inner}
    return values


def _former_keys_in(values: Any) -> list[tuple[str, str, str]]:
    """List the former keys in nested mappings: section, former key, current key."""
    return [
        (section, key, current)
        for section, keys in FORMER_KEYS.items()
        for key, current in keys.items()
        if isinstance(values, Mapping)
        and isinstance(values.get(section), Mapping)
        and key in values[section]
    ]


def with_settings(values: dict[str, Any], settings: Sequence[str]) -> dict[str, Any]:
    """Set ``key.key=value`` in nested mappings, in place; values are parsed as YAML."""
    for setting in settings:
        where, equals, text = setting.partition("=")
        if not equals:
            raise ConfigError(f"{setting!r} is no setting; expected one such as batch.tokens=65536")
        *sections, last = where.split(".")
        former = FORMER_KEYS.get(".".join(sections), {})
        if last in former:
            warn_of_former_name(where, ".".join([*sections, former[last]]))
            last = former[last]
        inner = values
        for section in sections:
            inner = inner.setdefault(section, {})
            if not isinstance(inner, dict):
                raise ConfigError(f"{setting!r}: {section} is a value, not a section")
        inner[last] = _parsed(text, setting)
    return values


def _call(path: Path, name: str) -> TrainingRecipe:
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
        made = function()
    if not isinstance(made, TrainingRecipe):
        raise ConfigError(f"{path}:{name} returned a {type(made).__name__}, not a TrainingRecipe")
    return made


@contextmanager
def _blaming(path: Path) -> Iterator[None]:
    """Raise an error of the user's file as a ConfigError that names its line."""
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


def _read_values(path: Path) -> dict[str, Any]:
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


class _RecipeValue(JsonValue):
    """A value of a recipe, which YAML may have read as another type."""

    def object(self) -> dict[str, Any]:
        """Read a mapping."""
        return dict(self.value) if isinstance(self.value, Mapping) else super().object()

    def number(self, *arguments: Any, **limits: Any) -> float:
        """Read a number; YAML reads 1e-4 as text, only 1.0e-4 is a number to it."""
        if isinstance(self.value, str):
            with suppress(ValueError):
                return self.at(float(self.value), "").number(*arguments, **limits)
        return super().number(*arguments, **limits)
