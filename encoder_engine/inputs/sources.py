"""Finds the files that the names of inputs stand for, and their formats."""

from __future__ import annotations

import contextlib
import difflib
import glob
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, get_args

from encoder_engine.errors import InputError, ReadError
from encoder_engine.inputs.opening import (
    STANDARD_INPUT,
    Format,
    compression_of,
    open_packed,
    recognise,
)
from encoder_engine.inputs.remote import expand_remote, is_remote

if TYPE_CHECKING:
    from collections.abc import Sequence

FORMATS: tuple[Format, ...] = get_args(Format)
# The formats that pyarrow reads by seeking: files must not be compressed as a whole, nor be
# standard input.
COLUMNAR: tuple[Format, ...] = ("parquet", "arrow")
_OTHER_ENDINGS: dict[str, Format] = {"feather": "arrow", "ipc": "arrow"}


class Source(NamedTuple):
    """A file and its format.

    format: None for a stream, whose first line shows the format when it is read.
    named: whether the caller named the file itself, not a directory or glob.
    recognised: whether the format was detected from the file's content, not its name.
    """

    name: str
    format: Format | None
    named: bool = True
    recognised: bool = False


def find_sources(
    names: Sequence[str],
    format: Format | None,  # noqa: A002
    columns: Sequence[str] = (),
) -> tuple[Source, ...]:
    """List the files of paths, directories, globs, and ``-`` once for standard input.

    A directory stands for the files below it in the order of their names, without hidden files and
    names that begin with ``_``. The first line of a file of unknown suffix shows its format; see
    :func:`recognise`, also for ``columns``. Raises :class:`ReadError` for a name that matches no
    file, or a file of unknown format, and :class:`InputError` for no name or a second ``-``.
    """
    if not names:
        raise InputError("no input given; name files, or - for standard input")
    if list(names).count(STANDARD_INPUT) > 1:
        raise InputError("standard input (-) can be read only once")
    found = []
    for name in names:
        for file in _look_up(name):
            by_name = format or _format_of(file)
            is_stream = not is_remote(file) and not Path(file).is_file()
            kind = by_name if by_name or is_stream else _recognised(file, name, columns)
            found.append(Source(file, kind, named=file == name, recognised=kind != by_name))
    return tuple(found)


def _look_up(name: str) -> list[str]:
    """List the files that a name stands for. Raises :class:`ReadError` if access is refused."""
    try:
        return _expand(name)
    except OSError as error:
        raise ReadError(f"{name} cannot be looked up: {error.strerror}") from error


def _expand(name: str) -> list[str]:
    if name.startswith("file://"):
        raise ReadError(f"{name} is an address; name the file by its path")
    if is_remote(name):
        return expand_remote(name)
    path = Path(name)
    if name == STANDARD_INPUT or path.is_file():
        return [name]
    if path.is_dir():
        files = sorted(file for file in path.rglob("*") if file.is_file())
        found = [str(file) for file in files if not _hidden(file.relative_to(path))]
        if not found:
            raise ReadError(f"{name} is a directory without files; name files of texts")
        return found
    if path.exists():  # a pipe, such as a shell's <(...)
        return [name]
    if glob.has_magic(name):
        matches = glob.glob(name, recursive=True)  # noqa: PTH207
        found = sorted(file for file in matches if Path(file).is_file())
        if not found:
            raise ReadError(f"{name} matches no file")
        return found
    siblings = [p.name for p in path.parent.iterdir()] if path.parent.is_dir() else []
    nearest = difflib.get_close_matches(path.name, siblings, n=1)
    hint = f"; did you mean {path.with_name(nearest[0])}?" if nearest else ""
    raise ReadError(f"{path} does not exist{hint}")


def _hidden(path: Path) -> bool:
    return any(part.startswith((".", "_")) for part in path.parts)


def _format_of(name: str) -> Format | None:
    """Return the format that a file's suffix states."""
    packed = compression_of(name)
    path = Path(name) if packed is None else Path(name).with_suffix("")
    ending = path.suffix.lower().removeprefix(".")
    kind = _OTHER_ENDINGS.get(ending, ending)
    for known in FORMATS:
        if kind == known:
            if packed is not None and known in COLUMNAR:
                raise ReadError(f"{name}: {known} is compressed inside; unpack it")
            return known
    return None


def _recognised(name: str, within: str, columns: Sequence[str]) -> Format:
    """Return the format that a file's first line shows; raises :class:`ReadError` for others.

    within: the name that the caller gave, for the message.
    """
    kind: Format | None = None
    with contextlib.suppress(ReadError), open_packed(name) as (stream, packed):
        if packed == "zip":
            kind = _format_of(str(stream.name))
        kind = kind or recognise(stream, name, columns)[1]
        if kind is not None and not (packed and kind in COLUMNAR):
            return kind
    path = Path(name) if compression_of(name) is None else Path(name).with_suffix("")
    ending = path.suffix.lower()
    endings = ", ".join(f".{known}" for known in FORMATS) + ", nor one with .gz, .xz, .zst, ..."
    pattern = f"{glob.escape(within.rstrip('/'))}/**/*.txt"
    others = f", or name the files wanted: '{pattern}'" if Path(within).is_dir() else ""
    raise ReadError(
        f"{name}: the ending {ending or '(none)'} is not one of {endings}, and the first line is "
        "neither a JSON object nor a header with the column of the texts; rename the file, or say "
        f"what it is with input_format={others}"
    )
