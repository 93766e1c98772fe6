"""``encoder-engine train-tokenizer``: trains a vocabulary on files or standard input."""

from __future__ import annotations

import shutil
import tempfile
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from encoder_engine.cli import option
from encoder_engine.cli.common import count, labelled_inputs, print_facts, print_json, spinner
from encoder_engine.cli.prepare import Texts

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from encoder_engine.inputs.readers import Inputs
    from encoder_engine.text.training.train import TrainingSummary

_STAGES = {"count": "Counting", "read": "Reading", "train": "Training"}


@click.command("train-tokenizer")
@click.argument("inputs", nargs=-1, metavar="[INPUT]...")
@click.option("--output", "-o", required=True, help="The directory to write.")
@click.option(
    "--corpus",
    "labelled",
    multiple=True,
    metavar="LABEL=INPUT",
    help="An input with its label, such as a language; repeatable.",
)
@click.option(
    "--kind",
    "model",
    type=click.Choice(["wordpiece", "unigram"]),
    default="wordpiece",
    show_default=True,
)
@option.choice(
    "--trainer",
    ["tokenizers", "sentencepiece"],
    "The library.  [default: tokenizers for WordPiece, sentencepiece for Unigram]",
)
@click.option("--vocab-size", type=int, default=30_000, show_default=True)
@option.value("--min-frequency", "Of a pair; WordPiece only.", 2, kind=int)
@click.option("--lowercase/--cased", default=True, show_default=True)
@click.option(
    "--strip-accents/--keep-accents",
    default=None,
    help="WordPiece only.  [default: stripped if lower-cased]",
)
@click.option("--special-token", multiple=True, help="A further special token; repeatable.")
@click.option("--byte-fallback", is_flag=True, help="Spell unknown characters by bytes.")
@option.value("--character-coverage", "Share of all characters to spell.", 0.9995, kind=float)
@option.value("--max-sentence-length", "Characters of a line; longer ones are cut.", 4096, kind=int)
@click.option("--input-limit", type=int, help="Texts to read in all.  [default: all]")
@option.value("--alpha", "Exponent of the labelled corpora's shares.", 0.3, kind=float)
@click.option("--seed", type=int, default=0, show_default=True, help="Of the sampling.")
@option.column
@option.input_format
@click.option("--overwrite", is_flag=True, help="Replace a tokenizer that exists.")
@click.option("--json", "as_json", is_flag=True, help="Print the summary as one line of JSON.")
@option.quiet
def train_tokenizer(inputs: tuple[str, ...], output: str, **options: Any) -> None:
    """Train a vocabulary on texts.

    The texts are of INPUT..., or of --corpus LABEL=INPUT.... Inputs are .txt, .jsonl, .csv, .tsv,
    .parquet and .arrow, the first four also compressed (.gz, .xz, .zst, .bz2, .zip), or - for
    standard input. They are read twice, so standard input goes to a file first.
    """
    from encoder_engine.text.training.train import TrainingOptions
    from encoder_engine.text.training.train import train_tokenizer as train

    names = labelled_inputs(inputs, options["labelled"], "LABEL")
    chosen = TrainingOptions(
        special_tokens=options["special_token"],
        **{name: options[name] for name in TrainingOptions.__dataclass_fields__ if name in options},
    )
    with ExitStack() as stack:
        corpora = {label: Texts(_open(stack, given, options)) for label, given in names.items()}
        shown = not options["quiet"] and not options["as_json"]
        watch = stack.enter_context(_progress(shown=shown))
        summary = train(corpora, output, chosen, overwrite=options["overwrite"], watch=watch)
    if options["as_json"]:
        print_json(_as_json(summary))
    elif not options["quiet"]:
        _print_summary(summary)


def _open(stack: ExitStack, names: list[str], options: dict[str, Any]) -> Inputs:
    """Open the inputs of a corpus; standard input is copied to a file, which is read twice."""
    from encoder_engine.inputs.opening import STANDARD_INPUT, open_source, recognise
    from encoder_engine.inputs.readers import open_inputs

    kind = options["input_format"]
    if STANDARD_INPUT not in names:
        return open_inputs(names, column=options["column"], format=kind)
    open_inputs(names, column=options["column"], format=kind)  # refuses before it is read
    held = Path(stack.enter_context(tempfile.TemporaryDirectory())) / "input"
    with open_source(STANDARD_INPUT) as stream, held.open("wb") as file:
        stream, found = recognise(stream, STANDARD_INPUT, [options["column"] or "text"])
        shutil.copyfileobj(stream, file)
    held = held.rename(held.with_suffix(f".{kind or found or 'txt'}"))
    paths = [str(held) if name == STANDARD_INPUT else name for name in names]
    return open_inputs(paths, column=options["column"], format=kind)


@contextmanager
def _progress(*, shown: bool) -> Iterator[Callable[[str, int], None]]:
    """Yield a callback that shows the stage and the number of texts, on a terminal."""

    def show(stage: str, done: int) -> None:
        if update is not None and done % 1024 == 0:
            update(description=_STAGES[stage], texts=f"{count(done)} texts" if done else "")

    with spinner(shown=shown) as update:
        yield show


def _as_json(summary: TrainingSummary) -> dict[str, Any]:
    corpora = {label: vars(found) for label, found in summary.corpora.items()}
    seconds = {stage: round(spent, 3) for stage, spent in summary.seconds.items()}
    return {**vars(summary), "corpora": corpora, "seconds": seconds}


def _print_summary(summary: TrainingSummary) -> None:
    """Print the numbers of texts that were read, left out and changed."""
    texts = "\n".join(
        f"{label + ': ' if label else ''}{count(found.num_read)} read of {count(found.num_texts)}"
        for label, found in summary.corpora.items()
    )
    changed = {
        "blank texts": (summary.num_blank, "left out"),
        "long lines": (summary.num_cut, "cut at --max-sentence-length"),
        "reserved characters": (summary.num_reserved, "U+2585 read as a space in as many lines"),
    }
    facts = {
        "vocabulary": f"{count(summary.vocab_size)} pieces in {summary.directory}",
        "texts": texts,
        "lines": count(summary.num_lines),
        **{name: f"{count(n)}, {what}" for name, (n, what) in changed.items() if n},
        "seconds": "  ".join(f"{name} {spent:.2f}" for name, spent in summary.seconds.items()),
    }
    if not summary.reproducible:
        facts["note"] = "this trainer's result differs from run to run; sentencepiece's does not"
    print_facts("Done", facts)
