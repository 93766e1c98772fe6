"""``encoder-engine inverse-cloze``: writes pairs of a sentence and its context, for retrieval."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from encoder_engine.cli import option
from encoder_engine.cli.rows.common import check_output, print_written, read_texts, row_options

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping


@click.command("inverse-cloze")
@row_options
@option.value(
    "--keep",
    "The share of pairs whose sentence also stays in the passage.",
    0.1,
    kind=click.FloatRange(min=0, max=1),
)
@option.number(
    "--max-length",
    "The most words of a passage; longer texts become several passages.",
    200,
    least=2,
)
def inverse_cloze(inputs: tuple[str, ...], **options: Any) -> None:
    """Write pairs of a sentence and the passage around it.

    The sentence is the query, the passage the positive. A text of INPUT... is cut into passages of
    whole sentences. Each passage of two sentences or more gives one pair. `encoder-engine finetune
    embedding --train` reads the file. Another --epoch draws other sentences.
    """
    from encoder_engine.data.row_files import write_rows

    check_output(inputs, options)
    rows = _rows(read_texts(inputs, options), options)
    number = write_rows(options["output"], rows, overwrite=options["overwrite"])
    print_written(number, options)


def _rows(texts: Iterator[str], options: Mapping[str, Any]) -> Iterator[dict[str, str]]:
    from encoder_engine.data.noising.bart import RowKey
    from encoder_engine.data.noising.inverse_cloze import inverse_cloze as draw
    from encoder_engine.data.noising.passages import cut_passages
    from encoder_engine.data.sentences import split_sentences

    index = 0
    for text in texts:
        sentences = [sentence.split() for sentence in split_sentences(text)]
        for passage in cut_passages(sentences, options["max_length"]):
            pair = draw(
                passage, RowKey(options["seed"], options["epoch"], index), keep=options["keep"]
            )
            index += 1
            if pair is None:
                continue
            spoken = [" ".join(sentence) for sentence in passage]
            document = " ".join(spoken[place] for place in pair.document)
            yield {"query": spoken[pair.query], "positive": document}
