"""``encoder-engine noise``: writes noised texts and their targets, to pretrain like T5 and BART."""

from __future__ import annotations

from collections.abc import Hashable
from typing import TYPE_CHECKING, Any, TypeVar

import click

from encoder_engine.cli import option
from encoder_engine.cli.rows.common import check_output, print_written, read_records, row_options
from encoder_engine.data.noising.kinds import NOISE_KINDS

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from encoder_engine.data.noising.bart import RowKey
    from encoder_engine.data.noising.noise import Noise
    from encoder_engine.data.noising.span_corruption import Noised
    from encoder_engine.inputs.records import Record

Token = TypeVar("Token", bound=Hashable)
# As many as in T5's vocabulary.
NUM_SENTINELS = 100


@click.command()
@row_options
@click.option(
    "--kind",
    "kinds",
    type=click.Choice(NOISE_KINDS),
    multiple=True,
    default=("span-corruption",),
    show_default=True,
    help="The noise; repeatable, except with span-corruption.",
)
@option.value(
    "--share",
    "The share of tokens.  [default: 0.15 for span-corruption, else 0.3]",
    kind=click.FloatRange(min=0, max=1),
)
@option.value(
    "--mean-length",
    "Mean length of a span, for span-corruption and text-infilling.",
    3.0,
    kind=click.FloatRange(min=0, min_open=True),
)
@option.number(
    "--max-length",
    "The most words or tokens of a row; longer texts become several rows.",
    512,
    least=2,
)
@click.option("--tokenizer", "-t", help="Write token ids by this model directory or hub id.")
@click.option("--mask", help="The mask of words; --tokenizer has its own.  [default: <mask>]")
def noise(inputs: tuple[str, ...], **options: Any) -> None:
    """Write noised texts and their targets, as for T5 and BART.

    Rows are of whole sentences of INPUT.... Without --tokenizer, words are noised, and the columns
    input and target hold texts. With --tokenizer, tokens are noised, and the columns input_ids and
    labels hold ids, with the tokenizer's special tokens. Rows depend only on the texts, the
    options, the seed and the epoch.
    """
    from encoder_engine.data.row_files import write_rows

    by_words = options["tokenizer"] is None
    if options["mask"] is not None and not by_words:
        raise click.UsageError("--mask is of words; leave it out, the tokenizer has a mask")
    check_output(inputs, options)
    records = read_records(inputs, options)
    rows = _word_rows(records, options) if by_words else _id_rows(records, options)
    number = write_rows(options["output"], rows, overwrite=options["overwrite"])
    print_written(number, options)


def _noised(
    noise_of: Noise[Token], passage: list[list[Token]], key: RowKey, record: Record
) -> Noised[Token]:
    """Return a passage with noise; errors name the input row ``record``, not the passage."""
    from encoder_engine.errors import BatchError

    try:
        return noise_of(passage, key)
    except BatchError as error:
        record.refuse(f"a passage {str(error).removeprefix(f'row {key.row} ')}")


def _word_rows(records: Iterator[Record], options: Mapping[str, Any]) -> Iterator[dict[str, str]]:
    from encoder_engine.data.noising.bart import RowKey
    from encoder_engine.data.noising.noise import Noise
    from encoder_engine.data.noising.passages import cut_passages
    from encoder_engine.data.sentences import split_sentences

    noise_of: Noise[str] = Noise(
        kinds=options["kinds"],
        mask=options["mask"] or "<mask>",
        sentinels=[f"<extra_id_{number}>" for number in range(NUM_SENTINELS)],
        share=options["share"],
        mean_length=options["mean_length"],
    )
    index = 0
    for record in records:
        sentences = [sentence.split() for sentence in split_sentences(record.values["text"])]
        for passage in cut_passages(sentences, options["max_length"]):
            key = RowKey(options["seed"], options["epoch"], index)
            noised = _noised(noise_of, passage, key, record)
            yield {"input": " ".join(noised.inputs), "target": " ".join(noised.targets)}
            index += 1


def _id_rows(
    records: Iterator[Record], options: Mapping[str, Any]
) -> Iterator[dict[str, list[int]]]:
    from encoder_engine.cli.tokenize import load_tokenizer
    from encoder_engine.data.noising.bart import RowKey
    from encoder_engine.data.noising.noise import Noise
    from encoder_engine.data.noising.passages import cut_passages, frame_of, sentinel_ids
    from encoder_engine.data.sentences import encode_sentences
    from encoder_engine.errors import ConfigError

    tokenizer = load_tokenizer(options["tokenizer"])
    mask_id = tokenizer.mask_token_id
    if mask_id is None and {"token-masking", "text-infilling"} & set(options["kinds"]):
        raise ConfigError(
            f"{options['tokenizer']} has no mask token, which token-masking and text-infilling "
            "need; name a tokenizer that has one, or another --kind"
        )
    noise_of: Noise[int] = Noise(
        kinds=options["kinds"],
        mask=-1 if mask_id is None else mask_id,
        sentinels=sentinel_ids(tokenizer) if "span-corruption" in options["kinds"] else (),
        share=options["share"],
        mean_length=options["mean_length"],
    )
    before, after = frame_of(tokenizer)
    longest = options["max_length"] - len(before) - len(after)
    if longest < 1:
        raise ConfigError(
            f"--max-length is {options['max_length']} and special tokens take "
            f"{len(before) + len(after)}: no room is left for text; raise it"
        )
    index = 0
    for record in records:
        (tokens,) = encode_sentences(tokenizer, [record.values["text"]])
        sentences = [ids.tolist() for ids in tokens.split(tokens.ids_T)]
        for passage in cut_passages(sentences, longest):
            key = RowKey(options["seed"], options["epoch"], index)
            noised = _noised(noise_of, passage, key, record)
            yield {
                "input_ids": [*before, *noised.inputs, *after],
                "labels": [*before, *noised.targets, *after],
            }
            index += 1
