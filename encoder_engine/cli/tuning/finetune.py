"""``encoder-engine finetune``: trains a checkpoint on labelled rows, resumable."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from encoder_engine.cli import option
from encoder_engine.cli.common import line_due, print_facts, print_json, resumable
from encoder_engine.cli.sweeping import run_and_print

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from encoder_engine.finetuning.recipe import FineTuningRecipe
    from encoder_engine.metrics.intervals import Interval
    from encoder_engine.training.loop import Progress


@click.command()
@click.argument("task", metavar="TASK|RECIPE")
@click.option("--train", multiple=True, metavar="FILE", help="The labelled rows; repeatable.")
@click.option("--dev", multiple=True, metavar="FILE", help="The rows that select; repeatable.")
@option.training
@resumable()
def finetune(task: str, output: str, **options: Any) -> None:
    """Fine-tune a model for TASK, or by RECIPE.

    RECIPE is a name or a .yaml file. The same command resumes an interrupted run, bit for bit on a
    CPU. The model with the best dev score is exported, with its tokenizer, in transformers' layout.
    """
    from encoder_engine.dependencies import require_torch

    require_torch("fine-tuning")
    import torch

    from encoder_engine.finetuning.recipe_reader import find_recipe
    from encoder_engine.finetuning.run import FineTuner, finetune_seeds

    def read(settings: list[str]) -> FineTuningRecipe:
        return find_recipe(
            task,
            [*options["settings"], *settings],
            checkpoint=options["checkpoint"],
            train=options["train"] or None,
            dev=options["dev"] or None,
        )

    if options["threads"] is not None:
        torch.set_num_threads(options["threads"])
    shown = not (options["quiet"] or options["as_json"])
    watch = _lines() if shown else None
    if options["sweep"]:
        _sweep(read, output, options, watch)
        return
    recipe = read([])
    if options["seeds"] is not None:
        runs, intervals = finetune_seeds(recipe, output, options["seeds"], watch=watch)
        degenerate = [str(run.directory) for run in runs if run.degenerate]
        if options["as_json"]:
            print_json({"output": output, "scores": intervals, "degenerate": degenerate})
        elif shown:
            facts = score_facts({name: found.mean for name, found in intervals.items()}, intervals)
            print_facts(f"Mean of {len(runs)} seeds, 95% t interval; selected on dev", facts)
            for folder in degenerate:
                _warn_of_degenerate(folder)
        return
    tuner = FineTuner(recipe, Path(output))
    try:
        run = tuner.finetune(watch if tuner.world.is_first else None)
    finally:
        tuner.world.leave()
    if not tuner.world.is_first:
        return
    if options["as_json"]:
        summary = {"model": str(run.model), "scores": run.scores, "intervals": run.intervals}
        print_json({**summary, "degenerate": run.degenerate})
    elif shown:
        print_facts(
            "Done; scores are of the dev rows that selected the model",
            {"model": str(run.model), **score_facts(run.scores, run.intervals)},
        )
        if run.degenerate:
            click.echo(f"warning: {run.degenerate}", err=True)


def _sweep(
    read: Callable[[list[str]], FineTuningRecipe],
    output: str,
    options: dict[str, Any],
    watch: Callable[[Progress], None] | None,
) -> None:
    """Train a model for each combination of settings and each seed, and print the scores."""
    from encoder_engine.errors import ConfigError
    from encoder_engine.finetuning.run import FineTuner

    if not read([]).data.dev:
        raise ConfigError("a sweep compares scores of dev rows; name their files by --dev")

    def run(recipe: FineTuningRecipe, seed: int, folder: Path) -> dict[str, float]:
        seeded = replace(recipe, run=replace(recipe.run, seed=recipe.run.seed + seed))
        found = FineTuner(seeded, folder).finetune(watch)
        if found.degenerate and not options["quiet"]:
            _warn_of_degenerate(folder)
        return found.scores

    run_and_print(read, run, output, options, digits=2)


def _warn_of_degenerate(folder: Path | str) -> None:
    click.echo(f"warning: the model in {folder} learned nothing (degenerate)", err=True)


def score_facts(scores: Mapping[str, float], intervals: Mapping[str, Interval]) -> dict[str, str]:
    """Format scores by name as strings, with confidence intervals where there are any."""
    facts = {}
    for name, score in scores.items():
        found = intervals.get(name)
        within = "" if found is None else f"  [{found.low:.2f}, {found.high:.2f}]"
        facts[name.replace("_", " ")] = f"{score:.2f}{within}"
    return facts


def _lines() -> Callable[[Progress], None]:
    """Return a callback that prints a line for each evaluation, and one every 10 s."""
    due = line_due()

    def show(progress: Progress) -> None:
        scores = progress.record.get("evaluation", {})
        if not scores and not due():
            return
        shown = "  ".join(f"{name} {value:.2f}" for name, value in scores.items())
        loss = progress.record["loss"]
        click.echo(f"step {progress.step}/{progress.steps}  loss {loss:.4f}  {shown}", err=True)

    return show
