"""Readers of line formats: .txt (a text a line), .jsonl, .csv and .tsv, in constant memory."""

from __future__ import annotations

import csv
import json
import threading
from collections import Counter
from typing import TYPE_CHECKING, Any, BinaryIO, NoReturn

from encoder_engine.embedding.rows import Columns, Meter, Place, Row
from encoder_engine.errors import ReadError

if TYPE_CHECKING:
    from collections.abc import Iterator

_BYTE_ORDER_MARK = b"\xef\xbb\xbf"
# The csv module's own limit of 128 KiB a field is less than a long document.
_FIELD_CHARACTERS = 2**30
_field_limit = threading.Lock()


def _decoded_lines(stream: BinaryIO, place: Place, meter: Meter) -> Iterator[str]:
    """Yield each line with its line break, moving ``place`` along."""
    for number, raw in enumerate(stream, start=1):
        place.number = number
        meter.num_bytes += len(raw)
        line = raw[3:] if number == 1 and raw.startswith(_BYTE_ORDER_MARK) else raw
        try:
            yield line.decode("utf-8")
        except UnicodeDecodeError as error:
            if line.startswith((b"\xff\xfe", b"\xfe\xff")) or b"\0" in line:
                place.refuse("seems to be UTF-16, not UTF-8; convert it: iconv -f UTF-16 -t UTF-8")
            place.refuse(
                f"byte {error.start + 1} (0x{line[error.start]:02X}) is not UTF-8; convert the "
                "file, for example: iconv -f LATIN1 -t UTF-8"
            )


def read_txt(stream: BinaryIO, name: str, meter: Meter) -> Iterator[Row]:
    """Yield a row per line, ended by LF or CR LF; an empty line is an empty text."""
    for line in _decoded_lines(stream, Place(name), meter):
        yield Row(line.removesuffix("\n").removesuffix("\r"), None)


def read_jsonl(stream: BinaryIO, name: str, columns: Columns, meter: Meter) -> Iterator[Row]:
    """Yield a row per line, each a JSON object."""
    place = Place(name)
    for row, line in enumerate(_decoded_lines(stream, place, meter)):
        place.row = row
        if not line.strip():
            place.refuse("empty; remove it (sed '/^$/d')")
        try:
            record = json.loads(line, object_pairs_hook=_distinct)
        except json.JSONDecodeError as error:
            place.refuse(f"broken JSON ({error.msg} at character {error.colno}); mend or remove it")
        except RecursionError:
            place.refuse("JSON nested too deep; mend or remove it")
        except ValueError as error:  # an integer of thousands of digits, a key named twice
            place.refuse(f"JSON that cannot be read ({error}); mend or remove it")
        if not isinstance(record, dict):
            place.refuse(f"must be a JSON object, got {type(record).__name__}")
        for column in columns.names:
            if column not in record:
                place.refuse_column(column, record)
        yield Row(
            place.text(record[columns.text], columns.text),
            None
            if columns.identifier is None
            else place.identifier(record[columns.identifier], columns.identifier),
        )


def _distinct(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Refuse an object that names a key twice, of which json would keep the last."""
    merged = dict(pairs)
    if len(merged) != len(pairs):
        [(key, _)] = Counter(key for key, _ in pairs).most_common(1)
        raise ValueError(f"the key {key!a} occurs twice in one object")
    return merged


def read_csv(
    stream: BinaryIO, name: str, columns: Columns, meter: Meter, *, delimiter: str
) -> Iterator[Row]:
    """Yield a row per record after the header, which names the columns; quoting as in RFC 4180.

    Blank lines at the end are no records.
    """
    place = Place(name)
    records = _csv_records(_decoded_lines(stream, place, meter), delimiter)
    try:
        header = next(records, None)
        if header is None:
            refuse_empty(name)
        text_index = _find_column(place, header, columns.text)
        identifier_index = (
            None if columns.identifier is None else _find_column(place, header, columns.identifier)
        )
        blank_line: int | None = None
        for row, record in enumerate(records):
            place.row = row
            if not record:
                blank_line = blank_line or place.number
                continue
            if blank_line is not None:
                place.number = blank_line
                place.refuse("blank, with records after it; remove it")
            if len(record) != len(header):
                place.refuse(
                    f"{len(record)} fields, the header has {len(header)}; "
                    f"quote texts that hold {delimiter!r} or a line break"
                )
            # A field is text already, and a file in UTF-8 holds no surrogates.
            identifier = None
            if identifier_index is not None and columns.identifier is not None:
                identifier = place.identifier(record[identifier_index], columns.identifier)
            yield Row(record[text_index], identifier)
    except csv.Error as error:
        place.refuse(f"broken quoting ({error}); mend the quotes")


def _csv_records(lines: Iterator[str], delimiter: str) -> Iterator[list[str]]:
    """Read records with fields of any length, and leave the csv module's limit as it was.

    The limit holds for the whole process, so it is raised only while a record is being read.
    """
    reader = csv.reader(lines, delimiter=delimiter, strict=True)
    while True:
        with _field_limit:
            before = csv.field_size_limit(_FIELD_CHARACTERS)
            try:
                record = next(reader, None)
            finally:
                csv.field_size_limit(before)
        if record is None:
            return
        yield record


def _find_column(place: Place, header: list[str], column: str) -> int:
    found = header.count(column)
    if found == 0:
        place.refuse_column(column, header)
    if found > 1:
        place.refuse(f"the header names {column!r} {found} times; rename the others")
    return header.index(column)


def refuse_empty(name: str) -> NoReturn:
    """Raise the :class:`ReadError` of a file without rows."""
    raise ReadError(f"{name} holds no rows; leave it out")
