"""Readers of line formats: .txt (a text a line), .jsonl, .csv and .tsv, in constant memory."""

from __future__ import annotations

import csv
import json
import threading
from collections import Counter
from typing import TYPE_CHECKING, Any, BinaryIO

from encoder_engine.embedding.rows import Place, Reading, Row
from encoder_engine.embedding.texts import find_surrogate
from encoder_engine.errors import RowError

if TYPE_CHECKING:
    from collections.abc import Iterator

_BYTE_ORDER_MARK = b"\xef\xbb\xbf"
# The csv module's own limit of 128 KiB a field is less than a long document.
_FIELD_CHARACTERS = 2**30
_field_limit = threading.Lock()
_MEND_ENCODING = "is not UTF-8; convert the file, for example: iconv -f LATIN1 -t UTF-8"
_UTF_16 = "seems to be UTF-16, not UTF-8; convert it: iconv -f UTF-16 -t UTF-8"


def _lines(stream: BinaryIO, place: Place) -> Iterator[bytes]:
    """Yield each line with its line break, moving ``place`` along."""
    for number, raw in enumerate(stream, start=1):
        place.number, place.row = number, number - 1
        place.reading.meter.num_bytes += len(raw)
        if number == 1 and raw.startswith((b"\xff\xfe", b"\xfe\xff")):
            place.refuse_file(_UTF_16)
        yield raw[3:] if number == 1 and raw.startswith(_BYTE_ORDER_MARK) else raw


def _decode(line: bytes, place: Place) -> str:
    try:
        return line.decode("utf-8")
    except UnicodeDecodeError as error:
        if b"\0" in line:
            place.refuse_file(_UTF_16)
        place.refuse(f"byte {error.start + 1} (0x{line[error.start]:02X}) {_MEND_ENCODING}")


def read_txt(stream: BinaryIO, name: str, reading: Reading) -> Iterator[Row]:
    """Yield a row per line, ended by LF or CR LF; an empty line is an empty text."""
    place = Place(name, reading)
    for line in _lines(stream, place):
        try:
            text = _decode(line, place).removesuffix("\n").removesuffix("\r")
            row = place.make_row(place.text(text, "the line"), None)
        except RowError as error:
            reading.skip(error)
            continue
        yield row


def read_jsonl(stream: BinaryIO, name: str, reading: Reading) -> Iterator[Row]:
    """Yield a row per line, each a JSON object."""
    place = Place(name, reading)
    for line in _lines(stream, place):
        try:
            row = _json_row(_decode(line, place), place)
        except RowError as error:
            reading.skip(error)
            continue
        yield row


def _json_row(line: str, place: Place) -> Row:
    columns = place.reading.columns
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
            place.refuse(place.missing_column(column, record))
    text = place.text(record[columns.text], columns.text)
    if columns.identifier is None:
        return place.make_row(text, None)
    return place.make_row(text, place.identifier(record[columns.identifier], columns.identifier))


def _distinct(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Refuse an object that names a key twice, of which json would keep the last."""
    merged = dict(pairs)
    if len(merged) != len(pairs):
        [(key, _)] = Counter(key for key, _ in pairs).most_common(1)
        raise ValueError(f"the key {key!a} occurs twice in one object")
    return merged


def read_csv(stream: BinaryIO, name: str, reading: Reading, *, delimiter: str) -> Iterator[Row]:
    """Yield a row per record after the header, which names the columns; quoting as in RFC 4180.

    Blank lines at the end are no records. Broken quoting ends the reading in any case: nobody can
    tell where the next record would begin.
    """
    place = Place(name, reading)
    # Bytes that are not UTF-8 become surrogates, so that a record with some can be told and left.
    lines = (line.decode("utf-8", "surrogateescape") for line in _lines(stream, place))
    records = _csv_records(lines, delimiter)
    try:
        header = next(records, None)
        if header is None:
            return
        if find_surrogate("".join(header)) is not None:
            place.refuse_file(f"the header {_MEND_ENCODING}")
        columns = [_find_column(place, header, name) for name in reading.columns.names]
        blank_line: int | None = None
        for place.row, record in enumerate(records):
            if not record:
                blank_line = blank_line or place.number
                continue
            try:
                if blank_line is not None:
                    last, place.number, blank_line = place.number, blank_line, None
                    _report_blank(place)
                    place.number = last
                row = _csv_row(place, record, len(header), columns, delimiter)
            except RowError as error:
                reading.skip(error)
                continue
            yield row
    except csv.Error as error:
        place.refuse_file(f"broken quoting ({error}); mend the quotes")


def _report_blank(place: Place) -> None:
    """Tell of a blank line with records after it; its own row is lost, the record's is not."""
    try:
        place.refuse("blank, with records after it; remove it")
    except RowError as error:
        place.reading.skip(error)


def _csv_row(
    place: Place, record: list[str], num_fields: int, columns: list[int], delimiter: str
) -> Row:
    if len(record) != num_fields:
        place.refuse(
            f"{len(record)} fields, the header has {num_fields}; "
            f"quote texts that hold {delimiter!r} or a line break"
        )
    for column in columns:
        value = record[column]
        if not value.isascii() and (start := find_surrogate(value)) is not None:
            byte = ord(value[start]) - 0xDC00
            place.refuse(f"byte 0x{byte:02X} (character {start + 1} of its field) {_MEND_ENCODING}")
    names = place.reading.columns
    text = place.text(record[columns[0]], names.text)
    if names.identifier is None:
        return place.make_row(text, None)
    return place.make_row(text, place.identifier(record[columns[1]], names.identifier))


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
        place.refuse_file(place.missing_column(column, header))
    if found > 1:
        place.refuse_file(f"the header names {column!r} {found} times; rename the others")
    return header.index(column)
