"""``encoder-engine fill-mask`` and ``score``: predict masks, and score texts by likelihood."""

from __future__ import annotations

import math
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from encoder_engine.cli import option
from encoder_engine.cli.common import count, print_facts, print_json
from encoder_engine.errors import (
    DeviceMemoryError,
    NonFiniteVectorError,
    RowError,
    SequenceLengthError,
)
from encoder_engine.files import check_apart

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from encoder_engine.prediction.mask_filler import MaskFiller

# Texts that are read, scored and written together.
WINDOW_TEXTS = 256


def _load(model: str, device: str) -> MaskFiller:
    from encoder_engine.prediction.mask_filler import MaskFiller

    return MaskFiller.from_pretrained(model, device)


@click.command("fill-mask")
@option.model
@click.argument("text", metavar="TEXT")
@option.number("--top", "Tokens of each mask.", 5)
@click.option("--joint", is_flag=True, help="Fill all masks together, from left to right.")
@click.option(
    "--target", "targets", multiple=True, help="A word to compare in the mask's place; repeatable."
)
@option.device
@click.option("--json", "as_json", is_flag=True, help="Print a line of JSON for each row.")
def fill_mask(model: str, text: str, **options: Any) -> None:
    """Predict the masks of TEXT: "Paris is the [MASK] of France"."""
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
@option.model
@click.argument("files", metavar="DATA...", nargs=-1, required=True)
@click.option("--output", "-o", required=True, help="The .jsonl or .parquet file to write.")
@option.overwrite
@option.column
@click.option(
    "--single-tokens",
    is_flag=True,
    help="Of a masked model: mask a token alone, not the rest of its word with it.",
)
@option.device
def score(model: str, files: tuple[str, ...], output: str, **options: Any) -> None:
    """Write the log-likelihood of the texts of DATA.

    Of a masked language model, it is the pseudo-log-likelihood: each token is masked in turn. Of a
    causal one, it is the log-probability of all tokens but a text's first.
    """
    from encoder_engine.data.row_files import check_row_file, write_rows

    check_apart([Path(output)], map(Path, files))
    check_row_file(Path(output), overwrite=options["overwrite"])
    scoring = _load_scoring(model, options)
    total, num_tokens = 0.0, 0

    def counted_rows() -> Iterator[dict[str, Any]]:
        nonlocal total, num_tokens
        for text, (log_likelihood, tokens) in _scored(scoring, files, options["column"] or "text"):
            total += log_likelihood
            num_tokens += tokens
            yield {
                "text": text,
                "log_likelihood": log_likelihood,
                "tokens": tokens,
                scoring.perplexity: math.exp(-log_likelihood / tokens) if tokens else None,
            }

    num_texts = write_rows(Path(output), counted_rows(), overwrite=options["overwrite"])
    perplexity = f"{math.exp(-total / num_tokens):.4f}" if num_tokens else "no token"
    facts = {"tokens": count(num_tokens), scoring.perplexity.replace("_", "-"): perplexity}
    print_facts(f"{count(num_texts)} texts in {output}", facts)


class _Scoring(NamedTuple):
    """How a model scores texts.

    perplexity: the name of the perplexity that these scores give.
    score: a function from texts to each one's log-likelihood and number of scored tokens.
    """

    perplexity: str
    score: Callable[[list[str]], list[tuple[float, int]]]


def _load_scoring(model: str, options: dict[str, Any]) -> _Scoring:
    from encoder_engine.embedding import Scorer, encoder_directory
    from encoder_engine.families.checkpoints.adapters import weights_directory
    from encoder_engine.families.checkpoints.files import resolve_directory
    from encoder_engine.families.config import read_config, spec_from_config

    directory = resolve_directory(model)
    config = read_config(weights_directory(encoder_directory(directory)))
    if not spec_from_config(config).is_causal:
        filler = _load(model, options["device"])
        within_words = not options["single_tokens"]

        def score_masked(texts: list[str]) -> list[tuple[float, int]]:
            scores = filler.score(texts, within_words=within_words)
            return [(found.log_likelihood, len(found.tokens)) for found in scores]

        return _Scoring("pseudo_perplexity", score_masked)
    if options["single_tokens"]:
        raise click.UsageError(f"--single-tokens is for masked models, and {model} is causal")
    scorer = Scorer.from_pretrained(directory, options["device"])

    def score_causal(texts: list[str]) -> list[tuple[float, int]]:
        try:
            parts = scorer.score_tokens(texts, on_truncation="error")
        except SequenceLengthError as error:
            limit = scorer.max_seq_length
            reason = f"the text has more tokens than the model takes ({limit}); shorten or split it"
            raise RowError(f"text {error.row}: {reason}", row=error.row, reason=reason) from error
        return [(float(part.sum(dtype="float64")), len(part)) for part in parts]

    return _Scoring("perplexity", score_causal)


def _scored(
    scoring: _Scoring, files: tuple[str, ...], column: str
) -> Iterator[tuple[str, tuple[float, int]]]:
    from encoder_engine.inputs.tables import read_table

    for file in files:
        records = read_table(file, keywords={column: "column="})
        while window := list(islice(records, WINDOW_TEXTS)):
            texts = [record.text(column) for record in window]
            try:
                scores = scoring.score(texts)
            except RowError as error:
                # Rows count from the first text of the window.
                window[error.row or 0].refuse(error.reason)
            except NonFiniteVectorError as error:
                window[error.rows[0]].refuse(
                    "the model computes NaN or infinity for the text: its weights are damaged, or "
                    "its training diverged"
                )
            except DeviceMemoryError as error:
                window[error.row].refuse(
                    "the text alone exceeds the memory; shorten it, or choose another --device"
                )
            yield from zip(texts, scores, strict=True)
