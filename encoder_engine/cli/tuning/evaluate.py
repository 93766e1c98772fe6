"""``encoder-engine evaluate``: scores a fine-tuned model on labelled rows."""

from __future__ import annotations

from typing import Any

import click

from encoder_engine.cli import option
from encoder_engine.cli.common import print_facts, print_json, split_columns
from encoder_engine.cli.tuning.finetune import score_facts


@click.command()
@option.run
@click.argument("files", metavar="DATA...", nargs=-1, required=True)
@click.option("--against", metavar="RUN", help="Another run, compared on the same rows.")
@option.table
@option.device
@click.option("--json", "as_json", is_flag=True, help="Print the scores as one line of JSON.")
def evaluate(model: str, files: tuple[str, ...], **options: Any) -> None:
    """Score a fine-tuned model on the labelled rows of DATA."""
    from encoder_engine.finetuning.comparison import evaluate_files

    found = evaluate_files(
        model,
        files,
        header=split_columns(options["header"]),
        quoting=options["quoting"],
        against=options["against"],
        device=options["device"],
    )
    if options["as_json"]:
        values = {"rows": found.num_rows, "scores": found.scores, "intervals": found.intervals}
        compared = {"against": found.against, "p_value": found.p_value}
        print_json({**values, "degenerate": found.degenerate, **compared})
        return
    print_facts(f"{found.num_rows} rows", score_facts(found.scores, found.intervals))
    if found.against is not None and found.p_value is not None:
        print_facts(f"against {options['against']}", score_facts(found.against, {}))
        click.echo(f"  p-value of the difference of the rows: {found.p_value:.4g}")
    if found.degenerate:
        click.echo(f"warning: {found.degenerate}", err=True)
