"""``encoder-engine predict``: writes the predictions of a fine-tuned model."""

from __future__ import annotations

from itertools import islice
from pathlib import Path
from typing import Any

import click

from encoder_engine.cli import option
from encoder_engine.cli.common import count, split_columns
from encoder_engine.errors import DeviceMemoryError, NonFiniteVectorError
from encoder_engine.files import PendingFile, check_apart

# Rows that are read, predicted and written together: memory stays constant.
WINDOW_ROWS = 4096


@click.command()
@option.run
@click.argument("files", metavar="DATA...", nargs=-1, required=True)
@click.option(
    "--output",
    "-o",
    required=True,
    help="The file to write: .jsonl; .conll, .json (SQuAD) or .tsv (GLUE) by task.",
)
@option.overwrite
@option.table
@option.device
def predict(model: str, files: tuple[str, ...], output: str, **options: Any) -> None:
    """Predict the rows of DATA by a fine-tuned model.

    The suffix of the output is its form: .jsonl for every task, .conll for tags of words, .json for
    SQuAD's answers by id, .tsv for GLUE's index and prediction.
    """
    check_apart([Path(output)], map(Path, files))
    from encoder_engine.prediction.output_forms import output_form
    from encoder_engine.prediction.predictor import Predictor
    from encoder_engine.tasks.task_folder import read_records

    predictor = Predictor.from_pretrained(model, options["device"])
    task = predictor.task
    form = output_form(output, task)
    tables = predictor.tables.replaced(split_columns(options["header"]), options["quoting"])
    rows = read_records(task, files, tables)
    pending = PendingFile(Path(output), overwrite=options["overwrite"])
    try:
        pending.stream.write(form.begin().encode())
        while window := list(islice(rows, WINDOW_ROWS)):
            examples = [task.read(record) for record in window]
            try:
                predictions = predictor.predict_examples(examples)
            except NonFiniteVectorError as error:
                # Rows count from the first row of the window.
                window[error.rows[0]].refuse(
                    f"the model computes NaN or infinity for one of {len(error.rows)} rows from "
                    "this one on: its weights are damaged, or its training diverged"
                )
            except DeviceMemoryError as error:
                window[error.row].refuse(
                    "the rows from this one on exceed the memory; shorten their texts, or choose "
                    "another --device"
                )
            written = form.write(examples, predictions)
            pending.stream.write(written.encode())
        pending.stream.write(form.end().encode())
        pending.publish()
    finally:
        pending.discard()
    click.echo(f"{count(form.num_rows)} predictions in {output}", err=True)
