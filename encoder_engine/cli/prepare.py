"""``encoder-engine prepare``: tokenizes raw text into shards, resumable."""

from __future__ import annotations

import json
import tempfile
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from encoder_engine.cli import option
from encoder_engine.cli.common import (
    count,
    file_version,
    labelled_inputs,
    line_due,
    print_facts,
    print_json,
    resumable,
    spinner,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from encoder_engine.data.prepare import Prepared, Text
    from encoder_engine.data.shards import Corpus
    from encoder_engine.inputs.readers import Inputs
    from encoder_engine.inputs.records import Record
    from encoder_engine.text import Tokenizer


@click.command()
@click.argument("inputs", nargs=-1, metavar="[INPUT]...")
@click.option("--output", "-o", required=True, help="The folder to write.")
@click.option(
    "--corpus",
    "labelled",
    multiple=True,
    metavar="LANGUAGE=INPUT",
    help="An input with its language; repeatable.",
)
@click.option("--tokenizer", "-t", help="A model directory or hub id, or a vocabulary.")
@option.number(
    "--vocab-size",
    "Without --tokenizer: train a WordPiece vocabulary of this size on the inputs.",
    least=100,
)
@click.option(
    "--add-tokens",
    type=click.Path(exists=True, dir_okay=False),
    metavar="FILE",
    help="Words, one a line, to append to a WordPiece vocabulary.",
)
@option.column
@option.choice(
    "--books",
    ["whole", "chapters"],
    "Inputs are books as .txt: a file, or a chapter, is a document.",
)
@click.option("--salient", is_flag=True, help="Mark names and dates, to mask them as spans.")
@click.option(
    "--salient-column",
    help="Mark the spans of this column instead: ranges of characters, [[0, 5], ...].",
)
@option.input_format
@option.number("--shard-tokens", "Tokens per shard.", 2**26)
@click.option("--json", "as_json", is_flag=True, help="Print the summary as one line of JSON.")
@option.quiet
@resumable()
def prepare(inputs: tuple[str, ...], output: str, **options: Any) -> None:
    """Tokenize texts for pretraining.

    The texts are of INPUT..., or of --corpus LANGUAGE=INPUT.... A text is a document: a line of
    .txt, a row of other files. With --books, .txt files are books: lines are joined to paragraphs,
    and Project Gutenberg's licence is left out. The same command resumes an interrupted run, and
    ends in the same bytes. The tokenizer is saved in OUTPUT/tokenizer.
    """
    from encoder_engine.data.prepare import prepare as tokenize
    from encoder_engine.data.shards import Corpus
    from encoder_engine.inputs.readers import open_inputs

    names = labelled_inputs(inputs, options["labelled"], "LANGUAGE")
    if (options["tokenizer"] is None) == (options["vocab_size"] is None):
        raise click.UsageError("name one of --tokenizer, and --vocab-size to train one")
    corpora = {
        label: open_inputs(given, column=options["column"], format=options["input_format"])
        for label, given in names.items()
    }
    _check_books(corpora, options)
    _check_pipes(corpora, options)
    shown = not (options["quiet"] or options["as_json"])
    with _progress(shown=shown) as watch:
        done = tokenize(
            _texts(corpora, options),
            _tokenizer(corpora, options),
            Path(output),
            source=_source(corpora, options),
            languages=[label for label in corpora if label],
            shard_tokens=options["shard_tokens"],
            salient=options["salient"] or options["salient_column"] is not None,
            watch=watch,
        )
    summary = _summary(done, Corpus.open(Path(output), verify=False))
    wanted = options["vocab_size"]
    if wanted is not None and summary["vocab_size"] < wanted:
        click.echo(
            f"warning: the texts give {count(summary['vocab_size'])} tokens, {count(wanted)} were "
            "requested; train the vocabulary on more text",
            err=True,
        )
    if options["as_json"]:
        print_json({"directory": output, **summary})
    elif not options["quiet"]:
        _print_summary(output, summary)


def _texts(corpora: dict[str, Inputs], options: dict[str, Any]) -> Iterator[Text]:
    from encoder_engine.data.prepare import Text

    column = options["salient_column"]
    for number, rows in enumerate(corpora.values()):
        if column is None:
            for text in _plain_texts(rows, options["books"]):
                yield Text(text, number)
            continue
        keywords = {options["column"] or "text": "column=", column: "salient_column="}
        for record in _records(rows, keywords):
            text = record.text(options["column"] or "text")
            yield Text(text, number, _spans(record, column, len(text)))


def _plain_texts(rows: Inputs, books: str | None) -> Iterator[str]:
    """Yield the documents of the inputs: each row's text or, with ``--books``, the books."""
    if books is not None:
        from encoder_engine.data.books import read_books

        yield from read_books(rows, chapters=books == "chapters")
        return
    for row in rows:
        yield row.text


def _check_books(corpora: dict[str, Inputs], options: dict[str, Any]) -> None:
    """Raise an error for ``--books`` with inputs that are not plain text."""
    if options["books"] is None:
        return
    if options["salient_column"] is not None:
        raise click.UsageError("books have no columns; leave --salient-column out")
    others = [
        name
        for rows in corpora.values()
        for name, kind in rows.sources
        if kind not in (None, "txt")
    ]
    if others:
        raise click.UsageError(f"--books reads .txt files, but {others[0]} is not one")


def _check_pipes(corpora: dict[str, Inputs], options: dict[str, Any]) -> None:
    """Raise an error for training a vocabulary on pipes, because training reads texts twice."""
    from encoder_engine.inputs.opening import shown_name

    if options["vocab_size"] is None:
        return
    for name in (name for rows in corpora.values() for name, _ in rows.sources):
        if name == "-" or (Path(name).exists() and not Path(name).is_file()):
            raise click.UsageError(
                f"--vocab-size reads the inputs twice, and {shown_name(name)} can be read once; "
                "write it to a file, or train the vocabulary first, by train-tokenizer"
            )


def _records(rows: Inputs, keywords: dict[str, str]) -> Iterator[Record]:
    from encoder_engine.inputs.tables import read_table

    for name, kind in rows.sources:
        yield from read_table(name, format=kind, keywords=keywords)


def _spans(record: Record, column: str, length: int) -> tuple[tuple[int, int], ...]:
    """Return the character ranges in a column; raises :class:`RowError` for one out of range."""
    from encoder_engine.inputs.records import read_span

    spans = record.get(column)
    return tuple(
        read_span(record, f"{column}[{place}]", span, length, "characters")
        for place, span in enumerate(spans if hasattr(spans, "__len__") else [spans])
    )


def _source(corpora: dict[str, Inputs], options: dict[str, Any]) -> str:
    """Return inputs (with sizes and times of files) and options as JSON; a rerun needs the same."""
    files = {
        label: [[name, kind, *file_version(Path(name))] for name, kind in opened.sources]
        for label, opened in corpora.items()
    }
    settings: dict[str, Any] = {name: options[name] for name in ("column", "vocab_size")}
    if options["books"] is not None:
        settings["books"] = options["books"]
    if options["salient_column"] is not None:
        settings["salient_column"] = options["salient_column"]
    if options["vocab_size"] is not None and options["add_tokens"] is not None:
        settings["add_tokens"] = file_version(Path(options["add_tokens"]))
    return json.dumps({"inputs": files, **settings})


def _tokenizer(
    corpora: dict[str, Inputs], options: dict[str, Any]
) -> Tokenizer | Callable[[], Tokenizer]:
    """Return the tokenizer of ``--tokenizer``, or else a function that trains one."""
    from encoder_engine.cli.tokenize import load_tokenizer
    from encoder_engine.text import Tokenizer

    if options["tokenizer"] is not None:
        return _grown(load_tokenizer(options["tokenizer"]), options)

    def train() -> Tokenizer:
        from encoder_engine.text.training.train import TrainingOptions, train_tokenizer

        texts = {label: Texts(rows, options["books"]) for label, rows in corpora.items()}
        with tempfile.TemporaryDirectory() as scratch:
            trained = Path(scratch) / "trained"
            train_tokenizer(texts, trained, TrainingOptions(vocab_size=options["vocab_size"]))
            return _grown(Tokenizer.from_pretrained(trained), options)

    return train


def _grown(tokenizer: Tokenizer, options: dict[str, Any]) -> Tokenizer:
    """Return a tokenizer with the words of --add-tokens appended to its vocabulary."""
    from encoder_engine.errors import ReadError
    from encoder_engine.files import read_text
    from encoder_engine.text.training.extend_vocabulary import with_tokens

    if options["add_tokens"] is None:
        return tokenizer
    return with_tokens(tokenizer, read_text(Path(options["add_tokens"]), ReadError).split())


class Texts:
    """An iterable over the texts of inputs, which every iteration reads again."""

    def __init__(self, rows: Inputs, books: str | None = None) -> None:
        self._rows, self._books = rows, books

    def __iter__(self) -> Iterator[str]:
        for text in _plain_texts(self._rows, self._books):
            # A book is long: the trainer reads it one paragraph at a time.
            yield from text.split("\n") if self._books is not None else [text]


@contextmanager
def _progress(*, shown: bool) -> Iterator[Callable[[Prepared], None]]:
    """Yield a callback that shows progress: on a terminal a count, otherwise a line every 10 s."""
    due = line_due()

    def show(done: Prepared) -> None:
        texts = f"{count(done.texts)} texts  {count(done.characters)} characters"
        if update is not None:
            update(texts=texts)
        elif shown and due():
            click.echo(f"Tokenizing  {texts}", err=True)

    with spinner("Tokenizing", shown=shown) as update:
        yield show


def _summary(done: Prepared, corpus: Corpus) -> dict[str, Any]:
    return {
        "texts": done.texts,
        "resumed_texts": done.resumed_texts,
        "sentences": corpus.num_sentences,
        "tokens": corpus.num_tokens,
        "shards": len(done.shards),
        "used_tokens": done.used_tokens,
        "vocab_size": corpus.vocabulary.size,
        "padding_saved": _padding_saved(corpus),
        "seconds": round(done.seconds, 3),
    }


def _padding_saved(corpus: Corpus, length: int = 128) -> float:
    """Return the share of padding, 0 to 1, in padded batches with one document per row.

    length: the tokens of a row; longer documents take several rows.
    """
    import numpy as np

    sizes = np.concatenate([np.diff(shard.document_starts) for shard in corpus.shards])
    rows = -(-sizes // (length - 2))
    return 1.0 - float(sizes.sum() + 2 * rows.sum()) / max(float(rows.sum() * length), 1.0)


def _print_summary(output: str, summary: dict[str, Any]) -> None:
    # The seconds are those of this run alone.
    resumed, rate = summary["resumed_texts"], summary["tokens"] / max(summary["seconds"], 1e-9)
    facts = {
        "corpus": f"{count(summary['tokens'])} tokens in {summary['shards']} shards of {output}",
        "texts": f"{count(summary['texts'])}, {count(summary['sentences'])} sentences",
        "vocabulary": f"{count(summary['used_tokens'])} of {count(summary['vocab_size'])} used",
        "packing": f"saves {summary['padding_saved']:.0%} of rows padded to 128 tokens",
        "seconds": f"{summary['seconds']:.2f}" + ("" if resumed else f", {count(rate)} tokens/s"),
    }
    if resumed:
        facts["resumed"] = f"{count(resumed)} texts were there"
    print_facts("Done", facts)
