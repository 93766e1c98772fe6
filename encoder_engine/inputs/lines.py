"""Readers of line formats (.txt with a text per line, .jsonl, .csv, .tsv) in constant memory."""

from __future__ import annotations

import csv
import json
import threading
from functools import partial
from itertools import chain
from typing import TYPE_CHECKING, Any, BinaryIO

from encoder_engine.errors import RowError
from encoder_engine.inputs.rows import Place, Reading, Row
from encoder_engine.json_values import distinct
from encoder_engine.strings import find_surrogate

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

BYTE_ORDER_MARK = b"\xef\xbb\xbf"
# The csv module's own limit of 128 KiB a field is less than a long document.
_FIELD_CHARACTERS = 2**30
_field_limit = threading.Lock()
# The most bytes of a line: a small compressed file may hold a line that exceeds the memory.
_LINE_BYTES = 2**28
# A character takes at most 4 bytes of UTF-8, or 12 of JSON (two escapes); the other columns of a
# line get 64 MiB.
_UTF_8_BYTES, _JSON_BYTES, _OTHER_COLUMNS_BYTES = 4, 12, 2**26
_MEND_ENCODING = "is not UTF-8; convert the file, for example: iconv -f LATIN1 -t UTF-8"
_UTF_16 = "seems to be UTF-16, not UTF-8; convert it: iconv -f UTF-16 -t UTF-8"


def read_lines(stream: BinaryIO, place: Place, limit: int) -> Iterator[bytes | None]:
    """Yield each line with its line break, and advance ``place``; None for a line over the limit.

    ``limit``: the most bytes of a line. The rest of a longer line is skipped, read in parts.
    """
    read = partial(stream.readline, limit + 1)
    for number, raw in enumerate(chain(_first_line(stream, place, limit), iter(read, b"")), 1):
        place.number, place.row = number, number - 1
        place.reading.meter.num_bytes += len(raw)
        if len(raw) <= limit:
            yield raw
            continue
        while raw and not raw.endswith(b"\n"):
            raw = read()
            place.reading.meter.num_bytes += len(raw)
        yield None


def _first_line(stream: BinaryIO, place: Place, limit: int) -> list[bytes]:
    """Read the first line without a byte order mark; return [] for an empty file."""
    line = stream.readline(len(BYTE_ORDER_MARK))
    if line.startswith((b"\xff\xfe", b"\xfe\xff")):
        place.number, place.row = 1, 0
        place.refuse_file(_UTF_16)
    if line == BYTE_ORDER_MARK:
        place.reading.meter.num_bytes += len(line)
        line = b""
    if not line.endswith(b"\n"):
        line += stream.readline(limit + 1 - len(line))
    return [line] if line else []


def _line_limit(reading: Reading, *, columns: bool = True) -> int:
    """Return the most bytes of a line; ``columns``: lines hold other columns than the text too."""
    longest = reading.max_characters
    if longest is None:
        return _LINE_BYTES
    if columns:
        return _JSON_BYTES * longest + _OTHER_COLUMNS_BYTES
    # A line of up to 1 MiB is kept even if too long, so that the error can count its characters.
    return max(_UTF_8_BYTES * longest + len("\r\n"), 2**20)


def _too_long(limit: int) -> str:
    return f"longer than {limit} bytes; split it, or allow more by a greater max_characters="


def decode_line(line: bytes, place: Place) -> str:
    """Decode a line of UTF-8; raises :class:`RowError` for other bytes."""
    try:
        return line.decode("utf-8")
    except UnicodeDecodeError as error:
        if b"\0" in line:
            place.refuse_file(_UTF_16)
        place.refuse(f"byte {error.start + 1} (0x{line[error.start]:02X}) {_MEND_ENCODING}")


class TextLines:
    """Makes rows from the lines of a text file."""

    def __init__(self, place: Place) -> None:
        self._place = place
        self.limit = _line_limit(place.reading, columns=False)

    def row(self, line: bytes | None) -> Row:
        """Return the row of a line; raises :class:`RowError` for a bad line.

        ``line`` None: the line exceeds the limit.
        """
        place = self._place
        if line is None:
            place.refuse(_too_long(self.limit))
        text = decode_line(line, place).removesuffix("\n").removesuffix("\r")
        kept = (text,) * len(place.reading.columns.kept)
        return place.make_row(place.text(text, "the line"), None, kept=kept)


class JsonLines:
    """Reads the lines of a .jsonl file, in order."""

    def __init__(self, place: Place) -> None:
        self._place = place
        self.limit = _line_limit(place.reading)
        self._blank = _BlankLines(place, "remove it (sed '/^[[:space:]]*$/d')")

    def record(self, line: bytes | None) -> dict[str, Any] | None:
        """Return a line's JSON object, or None if it is blank; raises :class:`RowError` if bad.

        ``line`` None: a line over the limit.
        """
        if line is not None and not line.strip():
            self._blank.note()
            return None
        self._blank.report()
        if line is None:
            self._place.refuse(_too_long(self.limit))
        return _json_object(decode_line(line, self._place), self._place)

    def row(self, line: bytes | None) -> Row | None:
        """Return the row of a line, None for a blank one; raises :class:`RowError` if bad."""
        record = self.record(line)
        return None if record is None else _json_row(record, self._place)

    @property
    def blank(self) -> bool:
        """Whether the last lines were blank: they become a bad row once an object follows."""
        return self._blank.noted


def read_txt(stream: BinaryIO, name: str, reading: Reading) -> Iterator[Row]:
    """Yield a row per line, ended by LF or CR LF; an empty line is an empty text."""
    place = Place(name, reading)
    lines = TextLines(place)
    for line in read_lines(stream, place, lines.limit):
        try:
            row = lines.row(line)
        except RowError as error:
            reading.skip(error)
            continue
        yield row


def read_jsonl(stream: BinaryIO, name: str, reading: Reading) -> Iterator[Row]:
    """Yield a row per line, each a JSON object. Blank lines at the end are ignored."""
    place = Place(name, reading)
    for record in read_objects(stream, place):
        try:
            row = _json_row(record, place)
        except RowError as error:
            reading.skip(error)
            continue
        yield row


def read_objects(stream: BinaryIO, place: Place) -> Iterator[dict[str, Any]]:
    """Yield each line's JSON object and advance ``place``; bad lines go to ``reading.skip``."""
    lines = JsonLines(place)
    for line in read_lines(stream, place, lines.limit):
        try:
            record = lines.record(line)
        except RowError as error:
            place.reading.skip(error)
            continue
        if record is not None:
            yield record


class _BlankLines:
    """Notes a file's blank lines, which are a bad row if a record follows them."""

    def __init__(self, place: Place, mend: str) -> None:
        self._place, self._mend = place, mend
        self._first: tuple[int, int] | None = None

    @property
    def noted(self) -> bool:
        """Whether blank lines have been noted and not yet reported."""
        return self._first is not None

    def note(self) -> None:
        """Note that the line at the present position is blank."""
        self._first = self._first or (self._place.number, self._place.row)

    def report(self) -> None:
        """Report the noted blank lines, which a record follows, as one bad row to ``skip``."""
        if self._first is None:
            return
        place, here = self._place, (self._place.number, self._place.row)
        (place.number, place.row), self._first = self._first, None
        try:
            place.refuse(f"blank, with records after it; {self._mend}")
        except RowError as error:
            place.reading.skip(error)
        place.number, place.row = here


def _json_object(line: str, place: Place) -> dict[str, Any]:
    line = line.rstrip("\r\n")
    try:
        record = json.loads(line, object_pairs_hook=distinct)
    except json.JSONDecodeError as error:
        place.refuse(f"broken JSON ({error.msg} at character {error.pos + 1}); fix or remove it")
    except RecursionError:
        place.refuse("JSON nested too deep; fix or remove it")
    except ValueError as error:  # an integer of thousands of digits, a key named twice
        place.refuse(f"JSON that cannot be read ({error}); fix or remove it")
    if not isinstance(record, dict):
        place.refuse(f"must be a JSON object, got {type(record).__name__}")
    return record


def _json_row(record: dict[str, Any], place: Place) -> Row:
    for column in place.reading.columns.names:
        if column not in record:
            place.refuse(place.missing_column(column, record))
    return place.row_of(record.__getitem__)


def read_csv(stream: BinaryIO, name: str, reading: Reading, *, delimiter: str) -> Iterator[Row]:
    """Yield a row per record after the header, which names the columns; quoting as in RFC 4180.

    Blank lines at the end are ignored. Broken quoting or an over-long record always ends reading,
    because the start of the next record is unknown.
    """
    place = Place(name, reading)
    records = read_fields(stream, place, delimiter=delimiter)
    header = next(records, None)
    if header is None:
        return
    columns = [_find_column(place, header, name) for name in reading.columns.names]
    for record in records:
        try:
            row = _csv_row(place, record, columns)
        except RowError as error:
            reading.skip(error)
            continue
        yield row


def read_fields(
    stream: BinaryIO,
    place: Place,
    *,
    delimiter: str,
    quoting: bool = True,
    header: Sequence[str] = (),
) -> Iterator[list[str]]:
    """Yield a CSV file's header, then each record's fields, as many as the header has.

    For quoting and damage see :func:`read_csv`.
    ``quoting``: False: quotation marks are ordinary characters, as in GLUE's files.
    ``header``: the columns of a file whose first line is a record.
    """
    lines = _RecordLines(stream, place)
    records = _csv_records(lines, delimiter, quoting)
    # A blank line within quotes is part of a text, which sed would remove as well.
    blank = _BlankLines(place, "remove it")
    try:
        names = list(header) if header else next(records, None)
        if names is None:
            return
        if find_surrogate("".join(names)) is not None:
            place.refuse_file(f"the header {_MEND_ENCODING}")
        yield names
        for place.row, record in enumerate(records):
            if not record:
                blank.note()
                continue
            blank.report()
            try:
                _check_fields(place, record, len(names), delimiter)
            except RowError as error:
                place.reading.skip(error)
                continue
            yield record
    except csv.Error as error:
        began = lines.first_line
        since = f" in the record that begins on line {began}" if began < place.number else ""
        place.refuse_file(f"broken quoting{since} ({error}); fix the quotes")


class _RecordLines:
    """The decoded lines of a CSV file, with a limit on the bytes of one record."""

    def __init__(self, stream: BinaryIO, place: Place) -> None:
        self._place = place
        self._limit = _line_limit(place.reading)
        self._lines = read_lines(stream, place, self._limit)
        self._num_bytes = 0
        self.first_line = 1

    def begin_record(self) -> None:
        """Start counting the bytes of a record."""
        self._num_bytes = 0
        self.first_line = self._place.number + 1

    def __iter__(self) -> Iterator[str]:
        for line in self._lines:
            self._num_bytes += 0 if line is None else len(line)
            if line is None or self._num_bytes > self._limit:
                self._place.refuse_file(
                    f"the record that begins on line {self.first_line} is {_too_long(self._limit)}"
                    "; a quote that is never closed may be the reason"
                )
            # Bytes that are not UTF-8 become surrogates: their record is found and skipped.
            yield line.decode("utf-8", "surrogateescape")


def _check_fields(place: Place, record: list[str], num_fields: int, delimiter: str) -> None:
    if len(record) != num_fields:
        place.refuse(
            f"{len(record)} fields, the header has {num_fields}; "
            f"quote texts that hold {delimiter!r} or a line break"
        )


def _csv_row(place: Place, record: list[str], columns: list[int]) -> Row:
    for column in columns:
        check_encoding(place, record[column])
    named = zip(place.reading.columns.names, columns, strict=True)
    return place.row_of({name: record[column] for name, column in named}.__getitem__)


def check_encoding(place: Place, value: str) -> None:
    """Raise :class:`RowError` for a row with a field that was not valid UTF-8."""
    if not value.isascii() and (start := find_surrogate(value)) is not None:
        byte = ord(value[start]) - 0xDC00
        place.refuse(f"byte 0x{byte:02X} (character {start + 1} of its field) {_MEND_ENCODING}")


def _csv_records(lines: _RecordLines, delimiter: str, quoting: bool) -> Iterator[list[str]]:
    """Yield records with fields of any length; the csv module keeps its own field limit.

    That limit is global to the process, so it is raised only while a record is read.
    """
    reader = csv.reader(
        lines,
        delimiter=delimiter,
        strict=True,
        quoting=csv.QUOTE_MINIMAL if quoting else csv.QUOTE_NONE,
    )
    while True:
        with _field_limit:
            before = csv.field_size_limit(_FIELD_CHARACTERS)
            lines.begin_record()
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
