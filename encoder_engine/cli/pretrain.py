"""``encoder-engine pretrain``: trains a model from a recipe and a corpus, resumable."""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from encoder_engine.cli import option
from encoder_engine.cli.common import count, line_due, print_facts, print_json, resumable
from encoder_engine.cli.sweeping import run_and_print

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from encoder_engine.training.pretraining.trainer import Progress
    from encoder_engine.training.recipe import TrainingRecipe


@click.command()
@click.argument("recipe", metavar="RECIPE")
@click.option("--corpus", "-c", help="The corpus: a folder that prepare wrote.")
@option.training
@resumable()
def pretrain(recipe: str, output: str, **options: Any) -> None:
    """Pretrain a model by RECIPE, on a corpus of prepare.

    RECIPE is a name, a .yaml file, or file.py:function. The names are tiny, bert_base, bert_large,
    roberta, modernbert, electra_small, spanbert and retromae. The same command resumes an
    interrupted run, bit for bit on a CPU. Under torchrun all processes train one model together.
    With --sweep or --seeds, OUTPUT gets a folder for each run, and a table of held-out scores is
    printed, with 95% t intervals over seeds.
    """
    from encoder_engine.dependencies import require_torch

    require_torch("pretraining")
    import torch

    from encoder_engine.training import Trainer
    from encoder_engine.training.pretraining.recipe_reader import find_recipe

    def read(settings: list[str]) -> TrainingRecipe:
        return find_recipe(
            recipe,
            [*options["settings"], *settings],
            corpus=options["corpus"],
            checkpoint=options["checkpoint"],
        )

    if options["threads"] is not None:
        torch.set_num_threads(options["threads"])
    if options["sweep"] or options["seeds"] is not None:
        _sweep(read, output, options)
        return
    chosen = read([])
    trainer = Trainer(chosen, Path(output))
    try:
        shown = not (options["quiet"] or options["as_json"]) and trainer.world.is_first
        with _progress(chosen, shown=shown) as watch:
            scores = trainer.run(watch)
    finally:
        trainer.world.leave()
    if not trainer.world.is_first:
        return
    if options["as_json"]:
        print_json({"model": str(Path(output) / "model"), "steps": chosen.run.steps, **scores})
    elif not options["quiet"]:
        facts = {name.replace("_", " "): _shown(value, 4) for name, value in scores.items()}
        written = {"model": str(Path(output) / "model"), "curves": str(Path(output) / "curves.svg")}
        print_facts("Done", {**written, **facts})


def _sweep(
    read: Callable[[list[str]], TrainingRecipe], output: str, options: dict[str, Any]
) -> None:
    """Train a model for each combination of settings and each seed, and print the scores."""
    from encoder_engine.training import Trainer

    shown = not (options["quiet"] or options["as_json"])

    def run(recipe: TrainingRecipe, seed: int, folder: Path) -> dict[str, float]:
        chosen = replace(recipe, run=replace(recipe.run, seed=recipe.run.seed + seed))
        if shown:
            click.echo(str(folder), err=True)
        with _progress(chosen, shown=shown) as watch:
            return Trainer(chosen, folder).run(watch)

    run_and_print(read, run, output, options, digits=3)


@contextmanager
def _progress(recipe: TrainingRecipe, *, shown: bool) -> Iterator[Callable[[Progress], None]]:
    """Yield a callback that shows progress: a bar on a terminal, else a line every 10 s."""
    from rich import progress as rich_progress
    from rich.console import Console

    console = Console(stderr=True)
    if not shown:
        yield lambda _progress: None
        return
    if not console.is_terminal:
        yield _lines()
        return
    columns = (
        rich_progress.TextColumn("Pretraining"),
        rich_progress.BarColumn(),
        rich_progress.MofNCompleteColumn(),
        rich_progress.TextColumn("{task.fields[facts]}"),
        rich_progress.TimeRemainingColumn(),
    )
    with rich_progress.Progress(*columns, console=console) as bar:
        task = bar.add_task("", total=recipe.run.steps, facts="")

        def show(progress: Progress) -> None:
            speed = progress.speed
            tokens = count(speed["tokens_per_second"])
            facts = (
                f"loss {progress.record['loss']:.3f}  {tokens} tokens/s  "
                f"{speed['data_wait']:.0%} waiting for data"
            )
            if "utilisation" in speed:
                facts += f"  {speed['utilisation']:.0%} MFU"
            bar.update(task, completed=progress.step, facts=facts)
            if "evaluation" in progress.record:
                bar.console.print(_evaluation_line(progress))

        yield show


def _lines() -> Callable[[Progress], None]:
    """Return a callback that prints a line for each evaluation, and one every 10 s."""
    due = line_due()

    def show(progress: Progress) -> None:
        if due() or "evaluation" in progress.record:
            click.echo(_evaluation_line(progress), err=True)

    return show


def _shown(value: float, digits: int = 3) -> str:
    """Format a score; values of 1e6 and more in scientific notation."""
    return f"{value:.{digits}f}" if abs(value) < 1e6 else f"{value:.2e}"


def _evaluation_line(progress: Progress) -> str:
    scores = progress.record.get("evaluation", {})
    shown = "  ".join(f"{name.replace('_', ' ')} {_shown(value)}" for name, value in scores.items())
    speed = f"{count(progress.speed['tokens_per_second'])} tokens/s"
    loss = f"loss {progress.record['loss']:.3f}"
    return f"step {progress.step}/{progress.steps}  {loss}  {shown}  {speed}"
