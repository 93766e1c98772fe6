"""Options that several subcommands have, with the same name and help: ``@option.model``."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

Command = TypeVar("Command", bound="Callable[..., Any]")

# The formats of files of texts.
FORMATS = ("txt", "jsonl", "csv", "tsv", "parquet", "arrow")


class CommandLine:
    """The command line that this process runs, for error messages.

    debug: whether ``--debug`` was given, before or after the subcommand.
    verb: the subcommand whose options were parsed last.
    """

    debug = False
    verb = click.Command(None)


def _note(context: click.Context, _parameter: click.Parameter, value: bool) -> None:
    CommandLine.debug = value or (CommandLine.debug and context.parent is not None)
    CommandLine.verb = context.command


# A path as an object.
PATH = click.Path(path_type=Path)


def value(
    name: str, meaning: str, default: object = None, *, kind: Any = None, to: str | None = None
) -> Callable[[Command], Command]:
    """Return a decorator that adds an option with a value to a command.

    ``meaning``: the option's help.
    ``kind``: the value's type; ``to``: the name of the function's parameter.
    """
    names = (name,) if to is None else (name, to)
    shown = default is not None
    return click.option(*names, type=kind, default=default, show_default=shown, help=meaning)


def number(
    name: str, meaning: str, default: int | None = None, *, least: int = 1
) -> Callable[[Command], Command]:
    """Return a decorator that adds an option with a whole number, at least ``least``."""
    return value(name, meaning, default, kind=click.IntRange(min=least))


def choice(
    name: str, choices: Sequence[str], meaning: str, default: str | None = None
) -> Callable[[Command], Command]:
    """Return a decorator that adds an option with one of several values."""
    return value(name, meaning, default, kind=click.Choice(choices))


def output(meaning: str, **options: Any) -> Callable[[Command], Command]:
    """Return a decorator that adds ``--output`` to a command, with the help ``meaning``."""
    return click.option("--output", "-o", help=meaning, **options)


def together(*options: Callable[[Any], Any]) -> Callable[[Command], Command]:
    """Return one decorator that adds several options; the help lists them in this order."""

    def add(command: Command) -> Command:
        """Add the options to a command."""
        for one in reversed(options):
            command = one(command)
        return command

    return add


_model = partial(click.option, "--model", "-m")
column = click.option("--column", help="The column of the texts.  [default: text]")
debug = click.option(
    "--debug",
    is_flag=True,
    expose_value=False,
    callback=_note,
    help="Show the traceback of a failure.",
)
device = click.option("--device", default="auto", show_default=True, help="cpu, cuda, cuda:1, ...")
hub = together(
    click.option("--revision", help="A branch, a tag or a commit of a hub id."),
    click.option(
        "--local-files-only",
        is_flag=True,
        help="Use a hub id's files as downloaded before; open no connection.",
    ),
)
input_format = choice(
    "--input-format", FORMATS, "The inputs' format.  [default: by name, or by the first line]"
)
model = _model(required=True, help="A model directory, or an id on the hub.")
overwrite = click.option("--overwrite", is_flag=True, help="Replace the output if it exists.")
quiet = click.option("--quiet", "-q", is_flag=True, help="Show no progress and no summary.")
run = _model(required=True, help="The folder of a run, as finetune wrote it.")
# Options for a file without a header, or for tables unlike those a model was trained on.
table = together(
    click.option(
        "--header",
        help="The columns of files without a header, separated by commas; by default as in "
        "training.",
    ),
    click.option(
        "--quoting/--no-quoting",
        default=None,
        help="No: quotation marks are plain characters, as in GLUE. By default as in training.",
    ),
)
threads = number("--threads", "CPU threads.  [default: all cores]")
# Options of pretrain and finetune, beside the recipe.
training = together(
    click.option(
        "--model",
        "-m",
        "checkpoint",
        help="The model to train: a directory or hub id.  [default: the recipe's]",
    ),
    click.option("--output", "-o", required=True, help="The run's folder; created, or resumed."),
    click.option(
        "--set",
        "settings",
        multiple=True,
        metavar="KEY=VALUE",
        help="Change a value of the recipe, such as run.seed=1 or task.text=sentence; repeatable.",
    ),
    click.option(
        "--sweep",
        multiple=True,
        metavar="KEY=A,B",
        help="Train one model for each value; several keys: for each combination.",
    ),
    number(
        "--seeds", "Train this many models with different seeds; print 95% t intervals.", least=2
    ),
    threads,
    click.option("--json", "as_json", is_flag=True, help="Print the summary as one line of JSON."),
    quiet,
)
# Options for the queries that are embedded to search STORE.
queries = together(
    _model(help="The model.  [default: the one that the manifest of STORE names]"),
    click.option(
        "--prompt",
        help="A text put before every query.  [default: the model's prompt named query, if any]",
    ),
    click.option("--prompt-name", help="The name of one of the model's own prompts."),
    device,
)
copies = together(
    click.option("--index", help="An index of STORE, made by encoder-engine index."),
    click.option(
        "--quantized", help="A copy of STORE, made by encoder-engine quantize, to find candidates."
    ),
    number(
        "--oversampling", "With --quantized, or --fuse of search: candidates for each result.", 4
    ),
)


def hub_keywords(options: Mapping[str, Any]) -> dict[str, Any]:
    """Return the keyword arguments for downloads from the hub whose options the user gave."""
    given = {"revision": options["revision"], "local_files_only": options["local_files_only"]}
    return {name: value for name, value in given.items() if value}
