"""Chooses the precision of a run whose recipe leaves it open."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

import torch

from encoder_engine.errors import ResumeError
from encoder_engine.json_values import read_value
from encoder_engine.ops.cpu import trains_in_bfloat16
from encoder_engine.training.recipe import Precision, Residual

if TYPE_CHECKING:
    from pathlib import Path

    from encoder_engine.training.recipe import RunRecipe
    from encoder_engine.training.world import World

__all__ = ["choose_precision"]

# The file in which courses record the recipe of a run.
RECIPE = "recipe.json"


def choose_precision(
    directory: Path, world: World, run: RunRecipe
) -> tuple[Precision, Residual | None]:
    """Return the type of a run's matrix products and, if that is bfloat16, of its residual stream.

    A type that the recipe leaves open is that of the run recorded in the folder, so that a run
    resumed on another device continues in the same precision. A new run multiplies in bfloat16 on a
    GPU that has it, and on a CPU with AMX or AMD's AVX-512 BF16; else in float32. Its stream is in
    bfloat16 on a GPU, else in float32. All ranks get the choice of rank 0. Raises
    :class:`ResumeError` where the recorded recipe cannot be read.
    """
    chosen: tuple[Precision, Residual | None] | None = None
    with world.awaiting_first():
        if world.is_first:
            before, stream = _recorded(directory / RECIPE) or (None, None)
            precision = run.precision or before or _usual(world.device)
            if precision != "bfloat16":
                stream = None
            elif stream is None or precision != before:
                stream = "bfloat16" if world.device.type == "cuda" else "float32"
            chosen = precision, run.residual or stream
    return cast("tuple[Precision, Residual | None]", world.broadcast(chosen))


def _recorded(path: Path) -> tuple[Precision, Residual | None] | None:
    if not path.exists():
        return None
    run = read_value(path, ResumeError).get("run")
    if not run.get("precision").present:
        return None
    return (
        cast("Precision", run.get("precision").read_as(Precision)),
        cast("Residual | None", run.get("residual").read_as(Residual | None)),
    )


def _usual(device: torch.device) -> Precision:
    if device.type == "cuda":
        has_bfloat16 = torch.cuda.is_bf16_supported(including_emulation=False)
    else:
        # A step takes 0.55 to 0.69 of the time in float32, of 8 families on Zen 4.
        has_bfloat16 = device.type == "cpu" and trains_in_bfloat16()
    return "bfloat16" if has_bfloat16 else "float32"
