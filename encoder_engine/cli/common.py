"""Functions that several subcommands share: folders, number formats, JSON output."""

from __future__ import annotations

import json
import math
import sys
import time
from contextlib import contextmanager
from dataclasses import fields, is_dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import click

from encoder_engine.errors import OutputError
from encoder_engine.files import PendingFile

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Iterator, Mapping, Sequence

# Seconds between two lines of progress, without a terminal.
LINE_SECONDS = 10.0


@contextmanager
def resumable() -> Iterator[None]:
    """Within this context, give an interrupt a message: that the same command goes on."""
    try:
        yield
    except KeyboardInterrupt as error:
        raise KeyboardInterrupt("stopped; the same command goes on") from error


def engine_version() -> str:
    """Return the version of the imported package."""
    version: str = sys.modules["encoder_engine"].__version__
    return version


def file_version(path: Path) -> list[int]:
    """Return size and modification time of a file, which tell whether it was changed.

    An empty list for a pipe or standard input.
    """
    if not path.is_file():
        return []
    found = path.stat()
    return [found.st_size, found.st_mtime_ns]


def labelled_inputs(
    inputs: tuple[str, ...], labelled: tuple[str, ...], label: str
) -> dict[str, list[str]]:
    """Group inputs by their labels: ``--corpus en=en.txt`` gives ``{"en": ["en.txt"]}``.

    Inputs without a label are under "". Raises ``click.UsageError`` for both or neither of them,
    and for a label without an input.
    """
    if bool(inputs) == bool(labelled):
        raise click.UsageError("name inputs, or labelled ones with --corpus, and not both")
    names: dict[str, list[str]] = {"": list(inputs)} if inputs else {}
    for item in labelled:
        given, equals, name = item.partition("=")
        if not (given and equals and name):
            raise click.UsageError(f"--corpus {item!r}: expected {label}=INPUT, such as en=en.txt")
        names.setdefault(given, []).append(name)
    return names


def write_page(path: str, page: str, *, overwrite: bool) -> None:
    """Write an HTML page to a file, which appears complete or not at all."""
    pending = PendingFile(Path(path), overwrite=overwrite)
    try:
        pending.stream.write(page.encode())
        pending.publish()
    finally:
        pending.discard()


def check_new_folder(path: str | os.PathLike[str]) -> None:
    """Raise :class:`OutputError` for a folder that cannot be written without replacing files."""
    folder = Path(path)
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise OutputError(f"{folder} exists and is not empty; name a new folder")


def split_columns(value: str | None) -> tuple[str, ...] | None:
    """Split ``--header`` into names; () for an empty text, None if the option is not given."""
    return None if value is None else tuple(name for name in value.split(",") if value)


def pooling_modes(value: str | None) -> tuple[str, ...] | None:
    """Split ``--pooling mean,max`` into its modes; None if the option is not given."""
    return None if value is None else tuple(mode.strip() for mode in value.split(","))


def print_json(value: object) -> None:
    """Print a value as one line of JSON; numbers that are not finite become null."""
    click.echo(json.dumps(_finite(value), ensure_ascii=False, allow_nan=False))


def _finite(value: object) -> object:
    """Return a value with non-finite numbers as None, and records as dicts, at any depth."""
    if isinstance(value, tuple) and hasattr(value, "_asdict"):
        value = value._asdict()
    elif is_dataclass(value) and not isinstance(value, type):
        # Not asdict, which copies arrays.
        value = {field.name: getattr(value, field.name) for field in fields(value)}
    if isinstance(value, dict):
        return {name: _finite(part) for name, part in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(part) for part in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def print_facts(title: str, facts: Mapping[str, object]) -> None:
    """Print a heading and aligned lines of name and value, without wrapping."""
    click.secho(title, bold=True)
    width = max(map(len, facts), default=0)
    for name, value in facts.items():
        first, *more = str(value).split("\n")
        click.echo(f"  {name:<{width}}  {first}")
        for line in more:
            click.echo(f"  {'':<{width}}  {line}")


def print_table(table: Sequence[Sequence[str]]) -> None:
    """Print rows of strings in aligned columns, the first row bold."""
    widths = [max(map(len, column)) for column in zip(*table, strict=True)]
    for place, row in enumerate(table):
        line = "  ".join(f"{text:<{width}}" for text, width in zip(row, widths, strict=True))
        click.secho(line.rstrip(), bold=place == 0)


def count(number: float) -> str:
    """Format a whole number with separators: 12,345."""
    return f"{number:,.0f}"


def binary_size(num_bytes: float) -> str:
    """Format a size with a binary unit: 15.6 GiB."""
    for unit in ("B", "KiB", "MiB", "GiB"):
        if num_bytes < 1024:
            return f"{num_bytes:.0f} {unit}" if unit == "B" else f"{num_bytes:.1f} {unit}"
        num_bytes /= 1024
    return f"{num_bytes:.1f} TiB"


@contextmanager
def spinner(title: str = "", *, shown: bool) -> Iterator[Callable[..., None] | None]:
    """Yield a function that updates a spinner's ``description`` and ``texts``.

    Yields None instead if standard error is no terminal, or if ``shown`` is False.
    """
    from rich.console import Console
    from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

    console = Console(stderr=True)
    if not shown or not console.is_terminal:
        yield None
        return
    texts = (TextColumn("{task.description}"), TextColumn("{task.fields[texts]}"))
    with Progress(SpinnerColumn(), *texts, TimeElapsedColumn(), console=console) as progress:
        yield partial(progress.update, progress.add_task(title, total=None, texts=""))


def line_due() -> Callable[[], bool]:
    """Return a function that returns True every 10 s, when a line of progress is due."""
    last = time.monotonic()

    def due() -> bool:
        nonlocal last
        now = time.monotonic()
        if now - last < LINE_SECONDS:
            return False
        last = now
        return True

    return due
