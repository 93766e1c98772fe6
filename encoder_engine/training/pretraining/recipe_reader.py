"""Reads recipes by name, from files and from single settings; refuses unknown keys."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from encoder_engine.errors import ConfigError
from encoder_engine.json_values import JsonSource, nearest
from encoder_engine.training.pretraining.recipes import RECIPES
from encoder_engine.training.recipe import TrainingRecipe
from encoder_engine.training.recipe_values import (
    RecipeValue,
    call_function,
    read_values,
    set_values,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["find_recipe", "recipe_from_values", "recipe_to_values"]


def find_recipe(
    name: str,
    settings: Sequence[str] = (),
    *,
    corpus: str | None = None,
    checkpoint: str | None = None,
) -> TrainingRecipe:
    """Return a recipe of pretraining: by its name, a YAML or JSON file, or ``file.py:function``.

    ``settings``: changed values, such as ``batch.tokens=65536``.
    ``corpus``: replaces ``data.corpus`` of the recipe.
    ``checkpoint``: the checkpoint to continue from, instead of the recipe's model.
    Raises :class:`ConfigError`.
    """
    path, colon, function = name.rpartition(":")
    if colon and path.endswith(".py"):
        values = recipe_to_values(_call(Path(path), function))
    elif name in RECIPES:
        values = recipe_to_values(RECIPES[name]())
    elif Path(name).suffix in (".yaml", ".yml", ".json"):
        values = read_values(Path(name))
    else:
        raise ConfigError(
            f"there is no recipe {name!r}{nearest(name, RECIPES)}; recipes are "
            f"{', '.join(RECIPES)}, a .yaml file, and file.py:function"
        )
    data = values.get("data") or {}
    # A value that is not a mapping is refused below, by its name.
    if corpus is not None and isinstance(data, Mapping):
        values["data"] = {**data, "corpus": corpus}
    if checkpoint is not None:
        values["model"] = {"checkpoint": checkpoint}
    # Last: a config that is set beside a checkpoint is refused, not replaced by it.
    return recipe_from_values(set_values(values, settings))


def recipe_to_values(recipe: TrainingRecipe) -> dict[str, Any]:
    """Return a recipe's settings as nested mappings, one per section."""
    return asdict(recipe)


def recipe_from_values(values: Any) -> TrainingRecipe:
    """Make a recipe from nested mappings, one per section; missing keys get their defaults."""
    source = JsonSource(name="", error=ConfigError, mend="")
    made: TrainingRecipe = RecipeValue(values, source, "recipe").read_as(TrainingRecipe)
    return made


def _call(path: Path, name: str) -> TrainingRecipe:
    made = call_function(path, name)
    if not isinstance(made, TrainingRecipe):
        raise ConfigError(f"{path}:{name} returned a {type(made).__name__}, not a TrainingRecipe")
    return made
