"""Finds recipes by name, in files, or by a task's name alone."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from encoder_engine.errors import ConfigError
from encoder_engine.finetuning.recipe import FineTuningRecipe, recipe_from_values
from encoder_engine.finetuning.recipes import RECIPES
from encoder_engine.json_values import nearest
from encoder_engine.tasks.registry import TASKS
from encoder_engine.training.recipe_values import read_values, set_values

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["find_recipe"]


def find_recipe(
    name: str,
    settings: Sequence[str] = (),
    *,
    checkpoint: str | None = None,
    train: Sequence[str] | None = None,
    dev: Sequence[str] | None = None,
) -> FineTuningRecipe:
    """Return the recipe of a task name, a recipe name, or a .yaml or .json file, with changes.

    ``settings``: such as ``run.epochs=5`` or ``task.text=sentence``.
    Raises :class:`ConfigError` that names an unknown key.
    """
    values: dict[str, Any]
    if name in TASKS:
        values = {"task": {"name": name}}
    elif name in RECIPES:
        values = {section: dict(found) for section, found in RECIPES[name].items()}
    elif Path(name).suffix in (".yaml", ".yml", ".json"):
        values = read_values(Path(name))
    else:
        known = [*TASKS, *RECIPES]
        raise ConfigError(
            f"there is no task or recipe {name!r}{nearest(name, known)}; there are "
            f"{', '.join(known)}, and .yaml files"
        )
    values = set_values(values, settings)
    for section, key, value in (
        ("model", "checkpoint", checkpoint),
        ("data", "train", train),
        ("data", "dev", dev),
    ):
        if value is not None:
            inner = values.setdefault(section, {})
            if not isinstance(inner, dict):
                raise ConfigError(f"{section} must be a section of settings, got {inner!r:.60}")
            inner[key] = value
    return recipe_from_values(values)
