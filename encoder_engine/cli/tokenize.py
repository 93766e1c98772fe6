"""``encoder-engine tokenize``: prints the token ids of each text."""

from __future__ import annotations

from itertools import islice, pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from encoder_engine.cli import option
from encoder_engine.cli.common import print_json

if TYPE_CHECKING:
    from collections.abc import Iterator

    from encoder_engine.text import Encoding, Tokenizer

_CHUNK_ROWS = 1024


@click.command()
@click.argument("input", metavar="INPUT")
@click.option("--model", "-m", required=True, help="A model directory or hub id, or a vocabulary.")
@option.column
@option.input_format
@click.option("--tokens", is_flag=True, help="Print tokens instead of ids.")
@click.option("--offsets", is_flag=True, help="Print each token's characters as start:end, too.")
@option.number("--max-length", "Cut longer texts to this many.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object per text.")
def tokenize(input: str, model: str, **options: Any) -> None:  # noqa: A002
    """Print the token ids of each text of INPUT, a line each.

    INPUT is a file, or - for standard input.
    """
    from encoder_engine.inputs.readers import open_inputs

    rows = open_inputs([input], column=options["column"], format=options["input_format"])
    tokenizer = load_tokenizer(model)
    texts = (row.text for row in rows)
    with_offsets = options["offsets"]
    while chunk := list(islice(texts, _CHUNK_ROWS)):
        encoding = tokenizer.encode_batch(
            chunk, max_length=options["max_length"], return_offsets=with_offsets
        )
        for record in _records(tokenizer, encoding, with_offsets=with_offsets):
            if options["as_json"]:
                print_json(record)
            else:
                click.echo(_line(record, "tokens" if options["tokens"] else "ids"))


def load_tokenizer(model: str) -> Tokenizer:
    """Load the tokenizer of a vocabulary file, a model directory, or a hub id."""
    from encoder_engine.embedding import encoder_directory
    from encoder_engine.families.checkpoints.files import resolve_directory
    from encoder_engine.text import Tokenizer

    path = Path(model)
    if not path.is_file():
        path = encoder_directory(resolve_directory(model))
    return Tokenizer.from_pretrained(path)


def _records(
    tokenizer: Tokenizer, encoding: Encoding, *, with_offsets: bool
) -> Iterator[dict[str, Any]]:
    bounds = encoding.cu_seqlens.tolist()
    for row, (start, stop) in enumerate(pairwise(bounds)):
        ids = encoding.ids[start:stop].tolist()
        record: dict[str, Any] = {
            "ids": ids,
            "tokens": [tokenizer.id_to_token(i) for i in ids],
            "truncated": bool(encoding.truncated[row]),
        }
        if with_offsets:
            assert encoding.offsets is not None
            record["offsets"] = encoding.offsets[start:stop].tolist()
        yield record


def _line(record: dict[str, Any], key: str) -> str:
    parts = [str(value) for value in record[key]]
    if "offsets" in record:
        spans = record["offsets"]
        parts = [f"{p}@{start}:{end}" for p, (start, end) in zip(parts, spans, strict=True)]
    return " ".join(parts)
