"""``encoder-engine predict``: writes a fine-tuned model's predictions, to a file or by a job."""

from __future__ import annotations

from itertools import islice
from pathlib import Path
from typing import Any

import click

from encoder_engine.cli import option
from encoder_engine.cli.common import count, split_columns
from encoder_engine.cli.embed_report import embed_progress
from encoder_engine.errors import DeviceMemoryError, InputError, NonFiniteVectorError
from encoder_engine.files import PendingFile, check_apart

# Rows that are read, predicted and written together: memory stays constant.
WINDOW_ROWS = 4096


@click.command()
@option.run
@click.argument("files", metavar="DATA...", nargs=-1, required=True)
@option.output(
    "The file to write: .jsonl; .conll, .json (SQuAD) or .tsv (GLUE) by task. A table "
    "(.parquet, .arrow), or a folder of shards (FOLDER/) that a second call resumes.",
    required=True,
)
@option.column
@click.option("--pair-column", help="Of a table or a folder: the column of the second texts.")
@click.option("--id-column", help="Of a table or a folder: the column of row ids.")
@option.number("--shard-rows", "Of a folder: rows per shard.")
@click.option("--workers", type=click.IntRange(min=1), default=1, help="Of a folder: processes.")
@option.overwrite
@option.table
@option.device
def predict(model: str, files: tuple[str, ...], output: str, **options: Any) -> None:
    """Predict the rows of DATA by a model of finetune, or a model that was fine-tuned elsewhere.

    The suffix of the output is its form: .jsonl for every task, .conll for tags of words, .json for
    SQuAD's answers by id, .tsv for GLUE's index and prediction. Tables and folders of shards have
    columns of labels or answers, for files of any size: --column and --pair-column name the texts.
    """
    if _is_job(output):
        _predict_job(model, files, output, options)
        return
    for name in ("column", "pair_column", "id_column", "shard_rows"):
        if options[name] is not None:
            raise click.UsageError(
                f"--{name.replace('_', '-')} is an option of tables and folders; the columns of "
                f"{output} are those of the model's task"
            )
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
            # Rows count from the first row of the window.
            except InputError as error:
                if error.row is None:
                    raise
                named = str(error).partition(f"row {error.row} ")
                window[error.row].refuse(named[2] or named[0])
            except NonFiniteVectorError as error:
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


def _is_job(output: str) -> bool:
    """Return whether a resumable job writes this output: a table or a folder of shards."""
    suffix = Path(output).suffix
    return output.endswith("/") or not suffix or suffix in (".parquet", ".arrow", ".lance")


def _predict_job(model: str, files: tuple[str, ...], output: str, options: dict[str, Any]) -> None:
    from encoder_engine.jobs.job import DatasetOptions, open_job
    from encoder_engine.jobs.run import run_job
    from encoder_engine.prediction.any_predictor import load_predictor

    if options["header"] is not None or options["quoting"] is not None:
        raise click.UsageError("--header and --quoting are options of .jsonl and other files")
    names = ("column", "pair_column", "id_column", "shard_rows", "overwrite", "workers")
    chosen = {name: options[name] for name in names}
    # Inputs and output are checked before the model is loaded.
    job = open_job(files, output, DatasetOptions(task="predictions", **chosen))
    with embed_progress(job.inputs.total_bytes, shown=True) as watch:
        summary = run_job(job, load_predictor(model, options["device"]).kind, watch=watch)
    click.echo(f"{count(summary.rows)} predictions in {output}", err=True)
