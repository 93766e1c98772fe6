"""Runs a sweep of settings for pretrain and finetune, and prints the table of scores."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from encoder_engine.cli.common import print_json, print_table

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

__all__ = ["run_and_print"]

Recipe = TypeVar("Recipe")


def run_and_print(
    read: Callable[[list[str]], Recipe],
    run: Callable[[Recipe, int, Path], Mapping[str, float]],
    output: str,
    options: dict[str, Any],
    *,
    digits: int,
) -> None:
    """Train for each combination of ``--sweep`` and each seed; print the scores of all.

    ``read`` and ``run``: see :func:`run_sweep`. ``digits``: decimals of the printed scores.
    Raises :class:`ConfigError` under torchrun, and :class:`NonFiniteLossError` if all diverge.
    """
    from encoder_engine.errors import ConfigError, NonFiniteLossError
    from encoder_engine.training.sweeps import read_sweep, run_sweep, sweep_table

    if os.environ.get("WORLD_SIZE", "1") != "1":
        raise ConfigError(
            "a sweep runs in one process; leave torchrun out, or start each run by its own command"
        )
    combinations = read_sweep(options["sweep"])
    cells = run_sweep(Path(output), combinations, options["seeds"] or 1, read=read, run=run)
    if options["as_json"]:
        for cell in cells:
            scores = {"scores": cell.scores, "intervals": cell.intervals}
            print_json({"settings": cell.settings, **scores, "diverged": cell.diverged})
    elif not options["quiet"]:
        print_table(sweep_table(cells, digits))
    for cell in cells:
        if cell.diverged is not None:
            named = ", ".join(f"{key}={value}" for key, value in cell.settings.items())
            click.echo(f"warning: {named or 'a run'}: {cell.diverged}", err=True)
    if all(cell.diverged is not None for cell in cells):
        raise NonFiniteLossError("every run of the sweep diverged; lower optimizer.learning_rate")
