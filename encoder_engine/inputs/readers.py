"""Reads texts from files, each by the reader of its format, in order and constant memory."""

from __future__ import annotations

from dataclasses import field, replace
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from encoder_engine.dataclass import dataclass
from encoder_engine.errors import InputError, RowError
from encoder_engine.inputs.columnar import import_pyarrow, read_arrow, read_parquet
from encoder_engine.inputs.identifiers import UniqueIdentifiers
from encoder_engine.inputs.lines import read_csv, read_jsonl, read_txt
from encoder_engine.inputs.opening import (
    STANDARD_INPUT,
    Format,
    compression_of,
    open_packed,
    recognise,
    shown_name,
)
from encoder_engine.inputs.remote import is_remote, open_remote
from encoder_engine.inputs.rows import Columns, Meter, Reading, Row, fail
from encoder_engine.inputs.sources import COLUMNAR, find_sources

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

DEFAULT_COLUMN = "text"
T = TypeVar("T")


@dataclass(frozen=True, kw_only=True)
class Inputs:
    """Input files in the order given; iterating yields their rows.

    found: files that a directory or glob expanded to; unlike a named file, they may be empty.
    total_bytes: the size of all files; None unless all are local files without compression.
    recognised: the formats and compressions detected from content, by file; of a stream, after it
    was read.
    """

    sources: tuple[tuple[str, Format | None], ...]
    reading: Reading
    total_bytes: int | None
    found: frozenset[str] = frozenset()
    recognised: dict[str, str] = field(default_factory=dict)

    @property
    def meter(self) -> Meter:
        """The counter of bytes that were read of all inputs."""
        return self.reading.meter

    @property
    def regular(self) -> bool:
        """True if all inputs are regular files, not pipes or standard input."""
        return all(self.is_file(name) for name, _ in self.sources)

    def skipping(self, skip: Callable[[RowError], None]) -> Inputs:
        """Return the same inputs, with bad rows skipped and reported to ``skip``."""
        return replace(self, reading=replace(self.reading, skip=skip))

    def __iter__(self) -> Iterator[Row]:
        return self.each_file(self.read)

    def each_file(self, read: Callable[[str, Format | None, Reading], Iterator[T]]) -> Iterator[T]:
        """Call ``read`` with each file's name, format and settings; yield the items of all files.

        ``read`` may yield one item for several rows. A named file for which it yields no item, and
        reports no bad row, has no rows, which is an error.
        """
        if self.reading.unique is not None:
            self.reading.unique.clear()
        for name, kind in self.sources:
            before, bad = self.meter.num_bytes, _BadRows(self.reading.skip)
            count = 0
            items = read(name, kind, replace(self.reading, skip=bad))
            for count, item in enumerate(items, start=1):  # noqa: B007
                yield item
            if count == 0 and bad.num_rows == 0 and name not in self.found:
                bad(_no_rows(shown_name(name)))
            if self.total_bytes is not None:
                # Bytes that belong to no row, such as a byte order mark or a footer, count too.
                self.meter.num_bytes = before + Path(name).stat().st_size

    @staticmethod
    def is_file(name: str) -> bool:
        """Return whether an input is a regular file."""
        return name != STANDARD_INPUT and not is_remote(name) and Path(name).is_file()

    def read(self, name: str, kind: Format | None, reading: Reading) -> Iterator[Row]:
        """Yield the rows of one input."""
        if kind in COLUMNAR:
            read = read_parquet if kind == "parquet" else read_arrow
            if not is_remote(name):
                yield from read(Path(name), reading)
                return
            with open_remote(name) as (remote, size):
                yield from read(name, reading, stream=remote, size=size)
            return
        with open_packed(name) as (stream, packed):
            if kind is None:
                stream, kind = recognise(stream, name, reading.columns.names)
                kind = kind or "txt"
                self._check(name, kind)
                self.recognised[name] = kind
            if packed is not None and packed != compression_of(name):
                self.recognised[name] = f"{kind}, packed by {packed}"
            if kind == "txt":
                yield from read_txt(stream, shown_name(name), reading)
            elif kind == "jsonl":
                yield from read_jsonl(stream, shown_name(name), reading)
            else:
                delimiter = "\t" if kind == "tsv" else ","
                yield from read_csv(stream, shown_name(name), reading, delimiter=delimiter)

    def _check(self, name: str, kind: Format | None) -> None:
        """Raise :class:`InputError` for a format that cannot be read as the caller asks.

        Plain lines have no columns to name, and a columnar file cannot come from standard input.
        """
        if kind == "txt" and self.reading.columns.given:
            raise InputError(
                f"{shown_name(name)} is read as plain lines, which have no columns "
                f"({', '.join(self.reading.columns.names)}); leave the column options out, or name "
                "another input format with input_format="
            )
        if kind in COLUMNAR and name == STANDARD_INPUT:
            raise InputError(f"{kind} cannot be read from standard input; name the file")


class _BadRows:
    """A ``skip`` function that calls another one, and counts the bad rows of one file."""

    def __init__(self, skip: Callable[[RowError], None]) -> None:
        self.num_rows = 0
        self._skip = skip

    def __call__(self, error: RowError) -> None:
        self._skip(error)
        self.num_rows += 1


def open_inputs(
    names: Sequence[str],
    *,
    column: str | None = None,
    id_column: str | None = None,
    pair_column: str | None = None,
    keep: Sequence[str] = (),
    format: Format | None = None,  # noqa: A002
    max_characters: int | None = None,
    unique_ids: bool = False,
) -> Inputs:
    """Check the inputs' names, and choose a reader for each, by its name or first line.

    names: files, directories and globs (see :func:`find_sources`), or ``-`` once for standard
        input. Its first line shows the format, if ``format`` is not given: JSON lines, a header
        with the columns, or else a text a line.
    column: the column of the texts, by default ``text``.
    id_column: the column of the ids; None: no ids.
    pair_column: the column of the second text of each pair; None: rows are single texts.
    keep: further columns to keep in the rows; for lines of texts, only ``text``.
    format: the format of all inputs, instead of their suffixes.
    max_characters: the most characters of a text; a row with more is bad.
    unique_ids: a row with a repeated id is bad.

    Raises :class:`ReadError` for a path that is not a readable file of a known suffix,
    :class:`InputError` for contradictory options, and :class:`MissingDependencyError` for a format
    that needs pyarrow.
    """
    columns = Columns(
        text=column or DEFAULT_COLUMN,
        identifier=id_column,
        pair=pair_column,
        kept=tuple(keep),
        given=any((column, id_column, pair_column)) or not {DEFAULT_COLUMN}.issuperset(keep),
    )
    looked_up = find_sources(names, format, columns.names)
    sources = tuple((source.name, source.format) for source in looked_up)
    for name, kind in sources:
        if kind in COLUMNAR or compression_of(name) == "zst":
            import_pyarrow(f"reading {name}")
    if column is not None and column == id_column:
        raise InputError(f"the text column and the id column are both {column!r}")
    if pair_column is not None and pair_column in (column or DEFAULT_COLUMN, id_column):
        raise InputError(f"the column of second texts is also another column: {pair_column!r}")
    if unique_ids and id_column is None:
        raise InputError("unique ids need an id column; name it with id_column=")
    plain = all(Path(name).is_file() and compression_of(name) is None for name, _ in sources)
    reading = Reading(
        columns=columns,
        skip=fail,
        max_characters=max_characters,
        unique=UniqueIdentifiers() if unique_ids else None,
    )
    total = sum(Path(name).stat().st_size for name, _ in sources) if plain else None
    found = frozenset(source.name for source in looked_up if not source.named)
    recognised = {source.name: str(source.format) for source in looked_up if source.recognised}
    opened = Inputs(
        sources=sources, reading=reading, total_bytes=total, found=found, recognised=recognised
    )
    for name, kind in sources:
        opened._check(name, kind)
    return opened


def _no_rows(name: str) -> RowError:
    reason = "holds no rows; leave it out"
    return RowError(f"{name} {reason}", file=name, number=0, reason=reason)
