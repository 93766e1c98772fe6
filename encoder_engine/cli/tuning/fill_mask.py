"""``encoder-engine fill-mask`` and ``score``: predictions and scores of a masked language model."""

from __future__ import annotations

import math
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from encoder_engine.cli.common import count, debug_option, print_facts, print_json
from encoder_engine.errors import RowError
from encoder_engine.files import check_apart

if TYPE_CHECKING:
    from collections.abc import Iterator

    from encoder_engine.prediction.mask_filler import MaskFiller

# Texts that are read, scored and written together.
WINDOW_TEXTS = 256


def _load(model: str, device: str) -> MaskFiller:
    from encoder_engine.prediction.mask_filler import MaskFiller

    return MaskFiller.from_pretrained(model, device)


@click.command("fill-mask")
@click.argument("model", metavar="MODEL")
@click.argument("text", metavar="TEXT")
@click.option(
    "--top", type=click.IntRange(min=1), default=5, show_default=True, help="Tokens of each mask."
)
@click.option("--joint", is_flag=True, help="Fill all masks together, from left to right.")
@click.option(
    "--target", "targets", multiple=True, help="A word to compare in the mask's place; repeatable."
)
@click.option("--device", default="auto", show_default=True, help="cpu, cuda, ...")
@click.option("--json", "as_json", is_flag=True, help="Print a line of JSON for each row.")
@debug_option
def fill_mask(model: str, text: str, **options: Any) -> None:
    """Predict the masks of TEXT by MODEL, such as "Paris is the [MASK] of France."."""
    if options["targets"] and options["joint"]:
        raise click.UsageError("--target ranks words for one mask; leave --joint out")
    filler = _load(model, options["device"])
    rows: list[dict[str, Any]]
    if options["targets"]:
        rows = [one._asdict() for one in filler.rank(text, options["targets"])]
    elif options["joint"]:
        rows = [one._asdict() for one in filler.fill_jointly([text], top_k=options["top"])[0]]
    else:
        rows = [
            {"mask": mask, **one._asdict()}
            for mask, found in enumerate(filler.fill([text], top_k=options["top"])[0])
            for one in found
        ]
    for row in rows:
        if options["as_json"]:
            print_json(row)
        elif "mask" in row:
            click.echo(f"mask {row['mask']}  {row['probability']:.4f}  {row['token']}")
        else:
            named = row.get("target", row.get("text"))
            click.echo(f"{math.exp(row['log_probability']):.3g}  {named}")


@click.command()
@click.argument("model", metavar="MODEL")
@click.argument("files", metavar="DATA...", nargs=-1, required=True)
@click.option("--output", "-o", required=True, help="The .jsonl or .parquet file to write.")
@click.option("--overwrite", is_flag=True, help="Replace the output if it exists.")
@click.option("--text", "column", default="text", show_default=True, help="The column of texts.")
@click.option(
    "--single-tokens", is_flag=True, help="Mask a token alone, not the rest of its word with it."
)
@click.option("--device", default="auto", show_default=True, help="cpu, cuda, ...")
@debug_option
def score(model: str, files: tuple[str, ...], output: str, **options: Any) -> None:
    """Write the pseudo-log-likelihood of the texts of DATA by MODEL, a masked language model."""
    from encoder_engine.data.row_files import check_row_file, write_rows

    check_apart([Path(output)], map(Path, files))
    check_row_file(Path(output), overwrite=options["overwrite"])
    filler = _load(model, options["device"])
    total, num_tokens = 0.0, 0

    def counted_rows() -> Iterator[dict[str, Any]]:
        nonlocal total, num_tokens
        for row in _scored(filler, files, options):
            total += row["log_likelihood"]
            num_tokens += row["tokens"]
            yield row

    num_texts = write_rows(Path(output), counted_rows(), overwrite=options["overwrite"])
    perplexity = f"{math.exp(-total / num_tokens):.4f}" if num_tokens else "no token"
    facts = {"tokens": count(num_tokens), "pseudo-perplexity": perplexity}
    print_facts(f"{count(num_texts)} texts in {output}", facts)


def _scored(
    filler: MaskFiller, files: tuple[str, ...], options: dict[str, Any]
) -> Iterator[dict[str, Any]]:
    from encoder_engine.inputs.tables import read_table

    for file in files:
        records = read_table(file)
        while window := list(islice(records, WINDOW_TEXTS)):
            texts = [record.text(options["column"]) for record in window]
            try:
                scores = filler.score(texts, within_words=not options["single_tokens"])
            except RowError as error:
                # Its row counts from the first text of the window.
                window[error.row or 0].refuse(error.reason)
            for text, found in zip(texts, scores, strict=True):
                yield {
                    "text": text,
                    "log_likelihood": found.log_likelihood,
                    "tokens": len(found.tokens),
                    "pseudo_perplexity": found.pseudo_perplexity if found.tokens else None,
                }
