"""Finds recipes of fine-tuning by name, in files, or by a task's name alone.

The named recipes are for well-known data sets, as local files. The columns of GLUE are those of its
files (Wang et al. 2019). Questions with their contexts are split into windows of 384 tokens that
share 128 tokens, as in BERT (Devlin et al. 2019).
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from encoder_engine.errors import ConfigError
from encoder_engine.finetuning.recipe import FineTuningRecipe, recipe_from_values
from encoder_engine.json_values import nearest
from encoder_engine.tasks.registry import TASKS
from encoder_engine.training.recipe_values import read_values, set_values

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

__all__ = ["find_recipe"]


def _glue(task: str = "sequence-classification", **settings: Any) -> dict[str, dict[str, Any]]:
    small = settings.pop("small", False)
    return {
        "task": {"name": task, **settings},
        "data": {"quoting": False, "max_length": 128},
        # Small sets are stable with 20 epochs (Mosbach et al. 2021).
        "run": {"epochs": 20 if small else 3},
        "optimizer": {"learning_rate": 2e-5},
    }


def _words(**settings: Any) -> dict[str, dict[str, Any]]:
    return {
        "task": {"name": "token-classification", **settings},
        "data": {"max_length": 128},
        "run": {"epochs": 3},
        "optimizer": {"learning_rate": 5e-5},
    }


def _questions() -> dict[str, dict[str, Any]]:
    return {
        "task": {"name": "question-answering"},
        "data": {"max_length": 384, "stride": 128},
        "run": {"epochs": 2},
        "optimizer": {"learning_rate": 3e-5},
    }


RECIPES: Mapping[str, Mapping[str, Mapping[str, Any]]] = {
    "cola": _glue(text="sentence", metric="matthews", small=True),
    "sst2": _glue(text="sentence"),
    "mrpc": _glue(
        text="#1 String", pair="#2 String", label="Quality", metric="accuracy", small=True
    ),
    "stsb": _glue("regression", text="sentence1", pair="sentence2", small=True),
    "qqp": _glue(text="question1", pair="question2", label="is_duplicate", metric="f1"),
    "mnli": _glue(text="sentence1", pair="sentence2", label="gold_label"),
    "qnli": _glue(text="question", pair="sentence"),
    "rte": _glue(text="sentence1", pair="sentence2", small=True),
    "conll": _words(),
    "wikiann": _words(strip_language=True),
    "wnut": _words(),
    "swag": {
        "task": {
            "name": "multiple-choice",
            "context": "sent1",
            "stem": "sent2",
            "endings": ("ending0", "ending1", "ending2", "ending3"),
        },
        "data": {"max_length": 128},
        "batch": {"examples": 16},
        "run": {"epochs": 3},
        "optimizer": {"learning_rate": 2e-5},
    },
    "squad": _questions(),
    "squad2": _questions(),
}


def find_recipe(
    name: str,
    settings: Sequence[str] = (),
    *,
    checkpoint: str | None = None,
    train: Sequence[str] | None = None,
    dev: Sequence[str] | None = None,
) -> FineTuningRecipe:
    """Return a fine-tuning recipe, by its name or from a file, with some values replaced.

    ``name``: a task's name, which gives the default settings; a named recipe, such as ``"mnli"``;
    or a .yaml or .json file.
    ``settings``: changed values, such as ``run.epochs=5`` or ``task.text=sentence``.
    ``checkpoint``, ``train``, ``dev``: replace those of the recipe.
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
