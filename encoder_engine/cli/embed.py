"""``encoder-engine embed``: embeds files of texts in constant memory, resumable."""

from __future__ import annotations

import time
from typing import Any

import click

from encoder_engine.cli import option
from encoder_engine.cli.common import print_json, split_columns
from encoder_engine.cli.embed_report import embed_progress, print_summary

SHARD_FORMATS = ("npy", "parquet", "arrow", "lance")
TASKS = ("dense", "sparse", "tokens", "scores")
QUANTIZATIONS = ("int8",)
ENGINES = ("auto", "compiled", "torch")
DTYPES = ("auto", "float32", "float64", "bfloat16", "float16")


@click.command()
@click.argument("inputs", nargs=-1, required=True, metavar="INPUT...")
@click.option(
    "--output",
    "-o",
    required=True,
    help="A file (.npy, .parquet, .arrow or .lance), or a folder of shards: FOLDER/.",
)
@option.model
@option.hub
@option.column
@option.choice(
    "--task",
    TASKS,
    "Vectors; sparse vectors (SPLADE); a vector of each token (ColBERT); scores of pairs.",
    "dense",
)
@click.option(
    "--pair-column", help="With --task scores: the column of the second texts.  [default: text]"
)
@option.number("--max-active-dims", "With --task sparse: the largest values to keep of a row.")
@option.choice(
    "--kind", ["document", "query"], "With --task tokens: what the texts are.  [default: document]"
)
@click.option("--id-column", help="The column of row ids, stored with the vectors.")
@click.option(
    "--keep",
    callback=lambda _context, _option, value: split_columns(value) or (),
    help="Columns to store beside the vectors, separated by commas; search shows them.",
)
@click.option("--unique-ids", is_flag=True, help="Treat a repeated id as a bad row.")
@option.input_format
@option.choice(
    "--on-error",
    ["fail", "skip"],
    "At a bad row: stop, or list it in _skipped.jsonl and continue.",
    "fail",
)
@option.number("--max-characters", "Treat a longer text as a bad row.")
@option.number("--shard-rows", "Rows per shard.  [default: 100000, or fewer after 45 seconds]")
@option.choice("--shard-format", SHARD_FORMATS, "Format of the shards.  [default: npy]")
@click.option(
    "--workers", type=click.IntRange(min=1), default=1, help="Processes; each has its own GPU."
)
@click.option(
    "--pooling",
    help="Pooling modes: cls, mean, max, ... or several, such as mean,max.  "
    "[default: those of the model's directory]",
)
@option.number(
    "--max-seq-length", "Tokens kept of a text.  [default: that of the model's directory]"
)
@option.number("--batch-tokens", "Tokens per batch.")
@click.option(
    "--prompt",
    help="A text put before every text.  [default: the model's, of documents if it has one]",
)
@click.option("--prompt-name", help="The name of one of the model's own prompts.")
@option.choice("--dtype", DTYPES, "The dtype of the computation; auto is float32.", "auto")
@option.choice("--quantization", QUANTIZATIONS, "Compute dense layers in 8-bit integers, on a CPU.")
@option.device
@option.choice(
    "--engine",
    ENGINES,
    "compiled needs no PyTorch, on a CPU; torch runs anywhere; auto chooses.",
    "auto",
)
@option.choice(
    "--precision", ["float32", "binary", "ubinary"], "The format of a stored feature.", "float32"
)
@option.number("--truncate-dim", "Leading features to keep.")
@click.option(
    "--normalize/--no-normalize",
    "normalize_embeddings",
    default=None,
    help="Vectors of length 1, or as pooled.  [default: that of the model's directory]",
)
@option.choice(
    "--on-truncation",
    ["ignore", "error"],
    "At a text beyond the model's limit: count it, or stop.",
    "ignore",
)
@click.option(
    "--staging", help="With an address as the output: the local folder of the run, to resume in."
)
@option.number("--threads", "CPU threads.  [default: physical cores]")
@click.option(
    "--append",
    is_flag=True,
    help="Embed what is new; replace rows of known ids whose text has changed.",
)
@click.option(
    "--delete-missing", is_flag=True, help="With --append: drop rows that INPUT... hold no longer."
)
@click.option(
    "--overwrite",
    is_flag=True,
    help="Replace a finished output, or one started with other settings; resumes this run's own.",
)
@click.option("--json", "as_json", is_flag=True, help="Print the summary as one line of JSON.")
@option.quiet
def embed(inputs: tuple[str, ...], output: str, model: str, **options: Any) -> None:
    """Embed the texts of files, folders or standard input.

    INPUT... are files, directories, globs, or - for standard input. Formats are .txt, .jsonl, .csv,
    .tsv, .parquet and .arrow, the first four also compressed (.gz, .xz, .zst, .bz2, .zip). Vectors
    are in the order of the rows. With --task scores a row is a pair: --column (by default query)
    and --pair-column. A file appears only when it is complete. In a folder of shards the same
    command resumes an interrupted run.
    """
    from encoder_engine.cli.embed_tasks import open_task
    from encoder_engine.jobs.run import run_job

    if output == "-":
        raise click.UsageError(
            "vectors are not written to standard output; name a file, or a folder: -o vectors/"
        )
    start = time.perf_counter()
    task = open_task(inputs, output, options)
    loaded = task.load(model)
    load_seconds = time.perf_counter() - start
    shown = not (options["quiet"] or options["as_json"])
    with embed_progress(task.job.inputs.total_bytes, shown=shown) as watch:
        summary = run_job(task.job, loaded, load_seconds=load_seconds, watch=watch)
    summary.model = model
    summary.output = output
    if options["as_json"]:
        print_json(summary.as_json())
    elif not options["quiet"]:
        print_summary(summary)
