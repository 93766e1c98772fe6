"""Reading texts from files: which reader a name gets, and what is refused before any is opened."""

from __future__ import annotations

import difflib
import errno
import gzip
import lzma
import sys
import zlib
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, Literal, cast, get_args

from encoder_engine.embedding.lines import read_csv, read_jsonl, read_txt, refuse_empty
from encoder_engine.embedding.parquet import import_pyarrow, read_parquet
from encoder_engine.embedding.rows import Columns, Meter, Row
from encoder_engine.errors import InputError, ReadError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

Format = Literal["txt", "jsonl", "csv", "tsv", "parquet"]
FORMATS: tuple[Format, ...] = get_args(Format)
STANDARD_INPUT = "-"
DEFAULT_COLUMN = "text"
# Endings behind a format's own: texts.jsonl.gz.
COMPRESSIONS = ("gz", "xz")


@dataclass(frozen=True, kw_only=True)
class Inputs:
    """Files read one after the other, in the order given; iterate it for the rows.

    ``total_bytes`` is None where standard input or a compressed file is among them. ``meter``
    counts while reading.
    """

    sources: tuple[tuple[str, Format], ...]
    columns: Columns
    total_bytes: int | None
    meter: Meter = field(default_factory=Meter)

    def __iter__(self) -> Iterator[Row]:
        for name, kind in self.sources:
            count = 0
            for count, row in enumerate(self._read(name, kind), start=1):  # noqa: B007
                yield row
            if count == 0:
                refuse_empty(_shown(name))

    def _read(self, name: str, kind: Format) -> Iterator[Row]:
        if kind == "parquet":
            yield from read_parquet(Path(name), self.columns, self.meter)
            return
        with _open(name) as stream:
            if kind == "txt":
                yield from read_txt(stream, _shown(name), self.meter)
            elif kind == "jsonl":
                yield from read_jsonl(stream, _shown(name), self.columns, self.meter)
            else:
                delimiter = "\t" if kind == "tsv" else ","
                yield from read_csv(
                    stream, _shown(name), self.columns, self.meter, delimiter=delimiter
                )


def open_inputs(
    names: Sequence[str],
    *,
    column: str | None = None,
    id_column: str | None = None,
    format: Format | None = None,  # noqa: A002
) -> Inputs:
    """Check the inputs' names and settle how each is read; nothing of them is read yet.

    ``names``: paths, or ``-`` once for standard input, which holds a text a line unless ``format``
    says otherwise. ``column``: where the texts are, by default ``text``. Raises :class:`ReadError`
    for a path that is no readable file of a known ending, :class:`InputError` for options that
    make no sense, :class:`MissingDependencyError` for parquet without pyarrow.
    """
    if not names:
        raise InputError("no input given; name files, or - for standard input")
    if list(names).count(STANDARD_INPUT) > 1:
        raise InputError("standard input (-) can be read only once")
    sources = tuple((name, format or _format_of(name)) for name in names)
    for name, kind in sources:
        if name != STANDARD_INPUT:
            _check_file(Path(name))
        if kind == "txt" and (column is not None or id_column is not None):
            raise InputError(
                f"{_shown(name)} is read as plain lines, which have no columns; leave the column "
                "options out, or name another input format"
            )
        if kind == "parquet":
            if name == STANDARD_INPUT:
                raise InputError("parquet cannot be read from standard input; name the file")
            import_pyarrow(f"reading {name}")
    if column is not None and column == id_column:
        raise InputError(f"the text column and the id column are both {column!r}")
    plain = [name for name in names if name != STANDARD_INPUT and _compression(name) is None]
    sizes = [Path(name).stat().st_size for name in plain]
    total = None if len(plain) < len(names) else sum(sizes)
    columns = Columns(text=column or DEFAULT_COLUMN, identifier=id_column)
    return Inputs(sources=sources, columns=columns, total_bytes=total)


def _shown(name: str) -> str:
    return "standard input" if name == STANDARD_INPUT else name


def _format_of(name: str) -> Format:
    if name == STANDARD_INPUT:
        return "txt"
    packed = _compression(name)
    path = Path(name) if packed is None else Path(name).with_suffix("")
    ending = path.suffix.lower().removeprefix(".")
    if packed is not None and ending == "parquet":
        raise ReadError(f"{name}: parquet is compressed inside; unpack it")
    for known in FORMATS:
        if ending == known:
            return known
    if Path(name).is_dir():
        raise ReadError(f"{name} is a directory; name the files in it")
    known_endings = ", ".join(f".{known}" for known in FORMATS) + ", nor one with .gz or .xz"
    raise ReadError(
        f"{name}: the ending {'.' + ending if ending else '(none)'} is not one of {known_endings}; "
        "rename the file, unpack it, or say what it is with --input-format"
    )


def _compression(name: str) -> str | None:
    ending = Path(name).suffix.lower().removeprefix(".")
    return ending if ending in COMPRESSIONS else None


def _check_file(path: Path) -> None:
    if path.is_dir():
        raise ReadError(f"{path} is a directory; name the files in it")
    if not path.exists():
        siblings = [p.name for p in path.parent.iterdir()] if path.parent.is_dir() else []
        nearest = difflib.get_close_matches(path.name, siblings, n=1)
        hint = f"; did you mean {path.with_name(nearest[0])}?" if nearest else ""
        raise ReadError(f"{path} does not exist{hint}")


@contextmanager
def _open(name: str) -> Iterator[BinaryIO]:
    """Open an input; what is broken in a compressed one shows only while it is read."""
    if name == STANDARD_INPUT:
        yield sys.stdin.buffer
        return
    with ExitStack() as stack:
        try:
            stream = stack.enter_context(Path(name).open("rb"))
        except OSError as error:
            mend = "; check its permissions" if error.errno == errno.EACCES else ""
            raise ReadError(f"{name} cannot be opened: {error.strerror}{mend}") from error
        try:
            yield _unpacked(stream, _compression(name))
        except (gzip.BadGzipFile, lzma.LZMAError, zlib.error, EOFError) as error:
            raise ReadError(f"{name} cannot be unpacked ({error}); copy it again") from error


def _unpacked(stream: BinaryIO, compression: str | None) -> BinaryIO:
    if compression == "gz":
        return cast("BinaryIO", gzip.GzipFile(fileobj=stream))
    return stream if compression is None else cast("BinaryIO", lzma.LZMAFile(stream))
