"""Chooses the precision of a run whose recipe names none."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast, get_args

import torch

from encoder_engine.errors import ResumeError
from encoder_engine.json_values import read_value
from encoder_engine.training.recipe import Precision

if TYPE_CHECKING:
    from pathlib import Path

    from encoder_engine.training.world import World

__all__ = ["choose_precision"]

# The file in which courses record the recipe of a run.
RECIPE = "recipe.json"


def choose_precision(directory: Path, world: World) -> Precision:
    """Return the precision that the run in a folder was begun with, or that of a new one.

    A new run computes in bfloat16 on a GPU that has it, and in float32 otherwise. All ranks get the
    choice of rank 0. Raises :class:`ResumeError` where the recorded recipe cannot be read.
    """
    chosen: Precision | None = None
    with world.awaiting_first():
        if world.is_first:
            chosen = _recorded(directory / RECIPE) or _usual(world.device)
    return cast("Precision", world.broadcast(chosen))


def _recorded(path: Path) -> Precision | None:
    if not path.exists():
        return None
    recorded = read_value(path, ResumeError).get("run").get("precision")
    if not recorded.present:
        return None
    return cast("Precision", recorded.one_of({name: name for name in get_args(Precision)}))


def _usual(device: torch.device) -> Precision:
    if device.type == "cuda" and torch.cuda.is_bf16_supported(including_emulation=False):
        return "bfloat16"
    return "float32"
