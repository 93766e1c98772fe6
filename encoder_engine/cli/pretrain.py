"""``encoder-engine pretrain``: a recipe and a corpus in, a trained model out, resumable."""

from __future__ import annotations

from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from encoder_engine.cli.common import count, debug_option, line_due, print_facts, print_json

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from encoder_engine.training.recipe import Recipe
    from encoder_engine.training.trainer import Moment


@click.command()
@click.argument("recipe", metavar="RECIPE")
@click.option("--corpus", "-c", help="The folder that prepare wrote.")
@click.option("--output", "-o", required=True, help="The run's folder.")
@click.option("--checkpoint", help="Go on from this model, a directory or hub id.")
@click.option(
    "--set",
    "settings",
    multiple=True,
    metavar="KEY=VALUE",
    help="What differs from the recipe, such as run.steps=500; may be given often.",
)
@click.option("--threads", type=click.IntRange(min=1), help="CPU threads.  [default: all cores]")
@click.option("--json", "as_json", is_flag=True, help="Print the summary as one line of JSON.")
@click.option("--quiet", "-q", is_flag=True, help="No progress and no summary.")
@debug_option
def pretrain(recipe: str, output: str, **options: Any) -> None:
    """Pretrain by RECIPE: a name, a .yaml file, or file.py:function.

    The names are tiny, bert_base, bert_large, roberta, modernbert, electra_small and spanbert. The
    same command goes on after whatever cut it off, bit for bit on a CPU. Under torchrun, all
    processes train the one model.
    """
    import torch

    from encoder_engine.training import Trainer
    from encoder_engine.training.recipe_reader import find_recipe

    chosen = find_recipe(
        recipe,
        options["settings"],
        corpus=options["corpus"],
        checkpoint=options["checkpoint"],
    )
    if options["threads"] is not None:
        torch.set_num_threads(options["threads"])
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


@contextmanager
def _progress(recipe: Recipe, *, shown: bool) -> Iterator[Callable[[Moment], None]]:
    """Give a function that shows how far it is: a bar on a terminal, else a line now and then."""
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn
    from rich.progress import TimeRemainingColumn as Remaining

    console = Console(stderr=True)
    if not shown:
        yield lambda _moment: None
        return
    if not console.is_terminal:
        yield _lines()
        return
    columns = (
        TextColumn("Pretraining"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("{task.fields[facts]}"),
        Remaining(),
    )
    with Progress(*columns, console=console) as progress:
        task = progress.add_task("", total=recipe.run.steps, facts="")

        def show(moment: Moment) -> None:
            speed = moment.speed
            facts = (
                f"loss {moment.record['loss']:.3f}  {count(speed['tokens_per_second'])} tokens/s  "
                f"{speed['data_wait']:.0%} waiting for data"
            )
            if "utilisation" in speed:
                facts += f"  {speed['utilisation']:.0%} MFU"
            progress.update(task, completed=moment.step, facts=facts)
            if "evaluation" in moment.record:
                progress.console.print(_evaluation_line(moment))

        yield show


def _lines() -> Callable[[Moment], None]:
    """Write a line for each evaluation, and one every ten seconds."""
    due = line_due()

    def show(moment: Moment) -> None:
        if due() or "evaluation" in moment.record:
            click.echo(_evaluation_line(moment), err=True)

    return show


def _shown(value: float, digits: int = 3) -> str:
    """Write a score; one that has grown beyond all bounds as a power of ten."""
    return f"{value:.{digits}f}" if abs(value) < 1e6 else f"{value:.2e}"


def _evaluation_line(moment: Moment) -> str:
    scores = moment.record.get("evaluation", {})
    told = "  ".join(f"{name.replace('_', ' ')} {_shown(value)}" for name, value in scores.items())
    speed = f"{count(moment.speed['tokens_per_second'])} tokens/s"
    return f"step {moment.step}/{moment.steps}  loss {moment.record['loss']:.3f}  {told}  {speed}"
