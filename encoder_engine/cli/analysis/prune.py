"""``encoder-engine prune``: ranks attention heads by importance, and writes a pruned model."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from encoder_engine.cli import option
from encoder_engine.cli.analysis.common import analysis_options, check_page, write_result
from encoder_engine.cli.common import check_new_folder

if TYPE_CHECKING:
    from encoder_engine.pages.report import Part

# Points of the curve at most, the whole model beside them.
CURVE_POINTS = 12


@click.command()
@option.run
@click.argument("files", metavar="DATA...", nargs=-1, required=True)
@option.number("--heads", "Heads that the written model loses.")
@click.option("--output", "-o", metavar="DIR", help="Write the model without them; a new folder.")
@click.option(
    "--zeroed", is_flag=True, help="Keep the shape, with weights of 0: transformers 5 loads it."
)
@option.number("--rows", "Rows read.  [default: all]")
@click.option("--seed", type=int, default=0, show_default=True, help="Of the random control.")
@analysis_options
def prune(model: str, files: tuple[str, ...], **options: Any) -> None:
    """Rank attention heads by their importance for a task.

    It is measured on labelled DATA. The curve compares removing the least important heads with
    removing random heads. The written model has no weights of the heads, and loads here; with
    --zeroed they are 0, and transformers loads it.
    """
    check_page(options)
    if bool(options["heads"]) != bool(options["output"]):
        raise click.UsageError("--heads and --output belong together")
    if options["output"]:
        check_new_folder(options["output"])
    from encoder_engine.dependencies import require_torch

    require_torch("pruning a model")
    from encoder_engine.analysis.importance import head_importance
    from encoder_engine.analysis.pruning import check_cut, least_important
    from encoder_engine.analysis.pruning_curve import prune_curve, read_examples, save_pruned
    from encoder_engine.pages.drawings import draw_grid, draw_lines
    from encoder_engine.pages.report import Drawing, Table
    from encoder_engine.prediction.predictor import Predictor

    predictor = Predictor.from_pretrained(model, options["device"], "float32", engine="torch")
    num_heads = sum(block.attention.num_heads for block in predictor.model.encoder.spec.blocks)
    if options["heads"] and options["heads"] > num_heads:
        raise click.UsageError(f"--heads is {options['heads']}, and {model} has {num_heads}")
    examples = read_examples(predictor, files, options["rows"])
    importance = head_importance(predictor, examples)
    removed = least_important(importance, options["heads"] or 0)
    if not options["zeroed"]:
        check_cut(predictor.model.encoder, removed)
    curve = prune_curve(predictor, examples, importance, points=CURVE_POINTS, seed=options["seed"])
    if options["output"]:
        save_pruned(predictor, removed, options["output"], keep_shape=options["zeroed"])
    score = predictor.task.main_score
    most = max(float(found.max()) for found in importance) or 1.0
    names = [f"layer {n}" for n in range(len(importance))]
    columns = [str(n) for n in range(max(map(len, importance)))]
    titles = [
        [f"head {head}: {value:.3g}" for head, value in enumerate(found)] for found in importance
    ]
    shades = [(found / most).tolist() for found in importance]
    parts: list[Part] = [
        Table(
            title=f"{score} without heads",
            columns=("removed", "least important", "random"),
            rows=[(str(p.removed), f"{p.score:.2f}", f"{p.random:.2f}") for p in curve],
        ),
        Drawing(
            title="Importance",
            svg=draw_grid(shades, names, columns, titles),
            note="Mean absolute gradient of a text's loss on the head's gate.",
        ),
        Drawing(
            title=f"{score} by removed heads",
            svg=draw_lines(
                {
                    "least important first": [p.score for p in curve],
                    "random": [p.random for p in curve],
                },
                [str(p.removed) for p in curve],
            ),
        ),
    ]
    values = {
        "model": model,
        "rows": len(examples),
        "score": score,
        "importance": [found.tolist() for found in importance],
        "curve": curve,
        "removed": removed,
    }
    summary = (
        f"{len(examples)} rows of {', '.join(files)} measured the heads and scored the models."
    )
    write_result(f"Heads of {model}", summary, parts, values, options)
