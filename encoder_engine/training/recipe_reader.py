"""Recipes from files, names and single settings; a key nobody knows is refused."""

from __future__ import annotations

import difflib
import importlib.util
import traceback
import types
from collections.abc import Mapping
from contextlib import contextmanager
from dataclasses import MISSING, asdict, fields, is_dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Union, get_args, get_origin, get_type_hints

from encoder_engine.errors import ConfigError, EncoderEngineError, MissingDependencyError
from encoder_engine.files import read_text
from encoder_engine.training.recipe import Recipe
from encoder_engine.training.recipes import RECIPES

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

__all__ = ["find_recipe", "read_recipe", "recipe_from_values", "recipe_to_values", "with_settings"]


def find_recipe(
    name: str,
    settings: Sequence[str] = (),
    *,
    corpus: str | None = None,
    checkpoint: str | None = None,
) -> Recipe:
    """Find a recipe: a name of ours, a YAML or JSON file, or ``file.py:function``.

    ``settings``: what is different, as ``batch.tokens=65536``; ``corpus`` and ``checkpoint``: the
    folder that is read and the model to go on from, whatever the recipe says of them, which may be
    nothing. Raises :class:`ConfigError`.
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
            f"there is no recipe {name!r}{_nearest(name, RECIPES)}; recipes are "
            f"{', '.join(RECIPES)}, a .yaml file, and file.py:function"
        )
    values = with_settings(values, settings)
    data = values.get("data") or {}
    # What is no mapping is refused below, by name.
    if corpus is not None and isinstance(data, Mapping):
        values["data"] = {**data, "corpus": corpus}
    if checkpoint is not None:
        values["model"] = {"checkpoint": checkpoint}
    return recipe_from_values(values)


def read_recipe(path: Path) -> Recipe:
    """Read a YAML or JSON file; :class:`ConfigError` names a key that nobody knows."""
    return recipe_from_values(_read_values(path))


def recipe_to_values(recipe: Recipe) -> dict[str, Any]:
    """Return a recipe as nested mappings."""
    return asdict(recipe)


def recipe_from_values(values: Any) -> Recipe:
    """Make a recipe of nested mappings; what is missing has its default."""
    made: Recipe = _made(Recipe, values, "recipe")
    return made


def with_settings(values: dict[str, Any], settings: Sequence[str]) -> dict[str, Any]:
    """Put ``key.key=value`` into nested mappings; values are read as YAML reads them."""
    for setting in settings:
        where, equals, text = setting.partition("=")
        if not equals:
            raise ConfigError(f"{setting!r} is no setting; expected one such as batch.tokens=65536")
        *sections, last = where.split(".")
        inner = values
        for section in sections:
            inner = inner.setdefault(section, {})
            if not isinstance(inner, dict):
                raise ConfigError(f"{setting!r}: {section} is a value and has no parts")
        inner[last] = _parsed(text, setting)
    return values


def _call(path: Path, name: str) -> Recipe:
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
    if not isinstance(made, Recipe):
        raise ConfigError(f"{path}:{name} returned a {type(made).__name__}, not a Recipe")
    return made


@contextmanager
def _blaming(path: Path) -> Iterator[None]:
    """Say in which line of the user's own file an error arose."""
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


def _nearest(key: str, known: Any) -> str:
    found = difflib.get_close_matches(key, list(known), n=1)
    return f"; did you mean {found[0]!r}?" if found else ""


def _made(kind: Any, value: Any, where: str) -> Any:
    """Make a value of an annotated type, or say what it should be."""
    if is_dataclass(kind):
        return _made_section(kind, value, where)
    origin, arguments = get_origin(kind), get_args(kind)
    if origin in (Union, types.UnionType):
        if value is None and type(None) in arguments:
            return None
        (kind,) = (argument for argument in arguments if argument is not type(None))
        return _made(kind, value, where)
    if origin is Literal:
        if value not in arguments:
            near = _nearest(str(value), [str(a) for a in arguments])
            choices = ", ".join(map(str, arguments))
            raise ConfigError(f"{where} must be one of {choices}, got {value!r}{near}")
        return value
    if origin is tuple:
        if not isinstance(value, (list, tuple)):
            raise ConfigError(f"{where} must be a list, got {value!r}")
        kinds = [arguments[0]] * len(value) if arguments[-1] is ... else list(arguments)
        if len(kinds) != len(value):
            raise ConfigError(f"{where} must be a list of {len(kinds)}, got {value!r}")
        return tuple(_made(k, v, f"{where}[{n}]") for n, (k, v) in enumerate(zip(kinds, value)))  # noqa: B905
    if origin is not None and issubclass(origin, Mapping):
        if not isinstance(value, Mapping):
            raise ConfigError(f"{where} must be a mapping, got {value!r}")
        return dict(value)
    return _made_plain(kind, value, where)


def _made_section(kind: Any, value: Any, where: str) -> Any:
    if not isinstance(value, Mapping):
        raise ConfigError(f"{where} must be a mapping, got {value!r:.60}")
    known = [f.name for f in fields(kind)]
    for key in value:
        if key not in known:
            raise ConfigError(
                f"{where} has no {key!r}{_nearest(str(key), known)}; it has {', '.join(known)}"
            )
    hints = get_type_hints(kind)
    inner = {key: _made(hints[key], found, f"{where}.{key}") for key, found in value.items()}
    required = [f.name for f in fields(kind) if f.default is f.default_factory is MISSING]
    lacking = [name for name in required if name not in inner]
    if lacking:
        raise ConfigError(f"{where} lacks {', '.join(lacking)}")
    return kind(**inner)


def _made_plain(kind: Any, value: Any, where: str) -> Any:
    if kind is float and isinstance(value, str):
        # YAML reads 1e-4 as text; only 1.0e-4 is a number to it.
        try:
            value = float(value)
        except ValueError:
            value = str(value)
    whole = isinstance(value, int) and not isinstance(value, bool)
    if kind is float and whole:
        return float(value)
    if not isinstance(value, kind) or (kind is int and not whole):
        wanted = {int: "a whole number", float: "a number", bool: "true or false", str: "a text"}
        raise ConfigError(f"{where} must be {wanted.get(kind, kind.__name__)}, got {value!r}")
    return value
