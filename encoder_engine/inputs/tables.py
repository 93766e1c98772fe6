"""Reads labelled files as records (:class:`Record`) of all their columns."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

from encoder_engine.inputs.columnar import read_columns
from encoder_engine.inputs.lines import check_encoding, read_fields, read_objects, read_txt
from encoder_engine.inputs.opening import Format, open_source, recognise, shown_name
from encoder_engine.inputs.records import Record
from encoder_engine.inputs.remote import is_remote, open_remote
from encoder_engine.inputs.rows import Columns, Place, Reading
from encoder_engine.inputs.sources import COLUMNAR, find_sources

if TYPE_CHECKING:
    import os
    from collections.abc import Iterator, Mapping, Sequence

__all__ = ["read_table"]

_READING = Reading(columns=Columns(text="text"))


def read_table(
    path: str | os.PathLike[str],
    *,
    header: Sequence[str] = (),
    quoting: bool = True,
    format: Format | None = None,  # noqa: A002
    keywords: Mapping[str, str] | None = None,
) -> Iterator[Record]:
    """Yield the rows of .jsonl, .csv, .tsv, .txt, .parquet and Arrow files, compressed or not.

    path: a file, a directory, a glob or an address; see :func:`find_sources`.
    header: the columns of a .csv or .tsv file that has no header.
    quoting: False: quotation marks in .csv and .tsv files are plain characters.
    format: the format, instead of the suffix.
    keywords: the arguments that name the columns, for errors; see :class:`Record`.

    A line of a .txt file is the column ``text``. Raises :class:`RowError` for a bad row.
    """
    row = 0
    for source in find_sources([str(path)], format):
        for number, values, unit in _read(source.name, source.format, header, quoting):
            yield Record(values, shown_name(source.name), number, row, unit, keywords or {})
            row += 1


def _read(
    name: str, kind: Format | None, header: Sequence[str], quoting: bool
) -> Iterator[tuple[int, dict[str, Any], str]]:
    """Yield for each row of a file its number, its values, and "line" or "row", what is counted."""
    if kind in COLUMNAR:
        if is_remote(name):
            with open_remote(name) as (remote, _):
                for number, values in enumerate(read_columns(name, kind, stream=remote), 1):
                    yield number, values, "row"
            return
        for number, values in enumerate(read_columns(Path(name), kind), 1):
            yield number, values, "row"
        return
    place = Place(shown_name(name), _READING)
    with open_source(name) as stream:
        if kind is None:
            stream, kind = recognise(stream, name, _READING.columns.names)
        if kind in (None, "txt"):
            for number, row in enumerate(read_txt(stream, place.name, _READING), 1):
                yield number, {"text": row.text}, "line"
        elif kind == "jsonl":
            for record in read_objects(stream, place):
                yield place.number, record, "line"
        else:
            delimiter = "\t" if kind == "tsv" else ","
            for values in _delimited(stream, place, delimiter, header, quoting):
                yield place.number, values, "line"


def _delimited(
    stream: BinaryIO, place: Place, delimiter: str, header: Sequence[str], quoting: bool
) -> Iterator[dict[str, Any]]:
    records = read_fields(stream, place, delimiter=delimiter, quoting=quoting, header=header)
    names = next(records, None)
    if names is None:
        return
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        place.refuse_file(f"the header names {twice!r} {names.count(twice)} times; rename one")
    for record in records:
        for value in record:
            check_encoding(place, value)
        yield dict(zip(names, record, strict=True))
