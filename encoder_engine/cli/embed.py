"""``encoder-engine embed``: files of texts in, one file of vectors out, in constant memory."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from encoder_engine.cli.common import debug_option, print_json
from encoder_engine.cli.embed_report import embed_progress, print_summary

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from encoder_engine.embedding import EmbeddedWindow, Embedder
    from encoder_engine.embedding.readers import Inputs
    from encoder_engine.embedding.rows import Identifier, Row
    from encoder_engine.embedding.store import VectorStore

FORMATS = ("txt", "jsonl", "csv", "tsv", "parquet")
DTYPES = ("auto", "float32", "float64", "bfloat16", "float16")


@dataclass(kw_only=True)
class EmbedSummary:
    """What a run did; the keys of ``--json``."""

    output: str
    model: str
    rows: int = 0
    tokens: int = 0
    truncated_rows: int = 0
    max_seq_length: int | None = None
    dimension: int = 0
    dtype: str = ""
    seconds: dict[str, float] = field(
        default_factory=lambda: dict.fromkeys(("load", "read", "tokenize", "encode", "write"), 0.0)
    )

    def as_json(self) -> dict[str, Any]:
        """Add the rates, over everything but loading the model."""
        working = self.seconds["total"] - self.seconds["load"]
        seconds = {stage: round(spent, 6) for stage, spent in self.seconds.items()}
        rates = {
            "rows_per_second": round(self.rows / working, 3),
            "tokens_per_second": round(self.tokens / working, 3),
        }
        return {**vars(self), "seconds": seconds, **rates}


@click.command()
@click.argument("inputs", nargs=-1, required=True, metavar="INPUT...")
@click.option("--output", "-o", required=True, help="The file to write: .npy or .parquet.")
@click.option("--model", "-m", required=True, help="A model directory, or an id on the hub.")
@click.option("--column", help="The column of the texts.  [default: text]")
@click.option("--id-column", help="A column to carry beside the vectors.")
@click.option(
    "--input-format",
    type=click.Choice(FORMATS),
    help="What the inputs are, whatever their names; for - (standard input) the default is txt.",
)
@click.option("--batch-tokens", type=click.IntRange(min=1), help="Tokens per batch.")
@click.option("--prompt", help="A text put before every text.")
@click.option("--prompt-name", help="The name of one of the model's own prompts.")
@click.option(
    "--dtype",
    type=click.Choice(DTYPES),
    default="auto",
    show_default=True,
    help="The numbers computed with; auto is float32.",
)
@click.option("--device", default="auto", show_default=True, help="cpu, cuda, cuda:1, ...")
@click.option(
    "--precision",
    type=click.Choice(["float32", "binary", "ubinary"]),
    default="float32",
    show_default=True,
    help="How a vector's features are stored.",
)
@click.option("--truncate-dim", type=click.IntRange(min=1), help="Leading features to keep.")
@click.option(
    "--normalize/--no-normalize",
    default=None,
    help="Vectors of length 1, or as pooled.  [default: what the model's directory says]",
)
@click.option("--threads", type=click.IntRange(min=1), help="CPU threads.  [default: all cores]")
@click.option("--overwrite", is_flag=True, help="Replace the output if it exists.")
@click.option("--json", "as_json", is_flag=True, help="Print the summary as one line of JSON.")
@click.option("--quiet", "-q", is_flag=True, help="No progress bar and no summary.")
@debug_option
def embed(inputs: tuple[str, ...], output: str, model: str, **options: Any) -> None:
    """Embed the texts of INPUT... (.txt, .jsonl, .csv, .tsv, .parquet, or - for standard input).

    One vector per row, in the order given, into one file that appears only when it is whole.
    """
    from encoder_engine.embedding.readers import STANDARD_INPUT, open_inputs
    from encoder_engine.embedding.store import VectorStore, check_output

    start = time.perf_counter()
    target = Path(output)
    rows = open_inputs(
        inputs,
        column=options["column"],
        id_column=options["id_column"],
        format=options["input_format"],
    )
    id_column = options["id_column"]
    check_output(
        target,
        id_column=id_column,
        overwrite=options["overwrite"],
        inputs=[Path(name) for name in inputs if name != STANDARD_INPUT],
    )
    embedder = _load(model, options)
    summary = EmbedSummary(
        output=output,
        model=model,
        max_seq_length=embedder.max_seq_length,
        dtype=str(embedder.encoder.dtype).removeprefix("torch."),
    )
    summary.seconds["load"] = time.perf_counter() - start
    with VectorStore(target, id_column=id_column, overwrite=options["overwrite"]) as store:
        _run(embedder, rows, store, summary, options)
    summary.seconds["total"] = time.perf_counter() - start
    if options["as_json"]:
        print_json(summary.as_json())
    elif not options["quiet"]:
        print_summary(summary.as_json())


def _load(model: str, options: dict[str, Any]) -> Embedder:
    import torch

    from encoder_engine.embedding import Embedder

    if options["threads"] is not None:
        torch.set_num_threads(options["threads"])
    return Embedder.from_pretrained(model, device=options["device"], dtype=options["dtype"])


def _run(
    embedder: Embedder,
    rows: Inputs,
    store: VectorStore,
    summary: EmbedSummary,
    options: dict[str, Any],
) -> None:
    seconds = summary.seconds
    pending: list[Identifier] = []
    windows = embedder.encode_windows(
        _texts(rows, pending, seconds),
        prompt=options["prompt"],
        prompt_name=options["prompt_name"],
        normalize_embeddings=options["normalize"],
        truncate_dim=options["truncate_dim"],
        precision=options["precision"],
        batch_tokens=options["batch_tokens"],
    )
    shown = not (options["quiet"] or options["as_json"])
    with embed_progress(rows.total_bytes, shown=shown) as show:
        for window in windows:
            _count(summary, window)
            start = time.perf_counter()
            store.append(window.vectors, pending[: len(window.vectors)])
            del pending[: len(window.vectors)]
            seconds["write"] += time.perf_counter() - start
            show(rows.meter.num_bytes, summary.rows, summary.tokens)


def _texts(
    rows: Iterable[Row], identifiers: list[Identifier], seconds: dict[str, float]
) -> Iterator[str]:
    """Yield the texts, set their ids aside, and add up the seconds spent reading."""
    iterator = iter(rows)
    while True:
        start = time.perf_counter()
        row = next(iterator, None)
        seconds["read"] += time.perf_counter() - start
        if row is None:
            return
        if row.identifier is not None:
            identifiers.append(row.identifier)
        yield row.text


def _count(summary: EmbedSummary, window: EmbeddedWindow) -> None:
    summary.rows += len(window.vectors)
    summary.tokens += window.num_tokens
    summary.truncated_rows += window.num_truncated
    summary.dimension = window.vectors.shape[1]
    summary.seconds["tokenize"] += window.tokenize_seconds
    summary.seconds["encode"] += window.encode_seconds
