"""Reads the texts of files into rows of the C++ extension, which tokenizers take as they are.

Plain files of lines are memory-mapped: the extension reads valid lines on all threads, and stops
before an invalid line. inputs/lines.py reads that line, so that rows and errors are the same. All
other inputs are read row by row.
"""

from __future__ import annotations

import mmap
import os
from typing import TYPE_CHECKING

from encoder_engine.errors import MissingExtensionError, RowError
from encoder_engine.inputs.lines import BYTE_ORDER_MARK, JsonLines, TextLines
from encoder_engine.inputs.opening import Format, open_packed, shown_name
from encoder_engine.inputs.rows import Place

if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import BinaryIO

    from encoder_engine import _native
    from encoder_engine.inputs.readers import Inputs
    from encoder_engine.inputs.rows import Reading

__all__ = ["read_text_rows"]

# The bytes of lines that the extension reads at once, and after a line that it left to Python: then
# what it reads further may be in vain.
_MOST_BYTES, _LEAST_BYTES = 2**24, 2**12
# Smaller files are read, not mapped: a great many files cannot all be mapped.
_MAPPED_BYTES = 2**20
_UTF_16_MARKS = (b"\xff\xfe", b"\xfe\xff")


def read_text_rows(inputs: Inputs, num_bytes: int = _MOST_BYTES) -> Iterator[_native.TextRows]:
    """Yield the texts of inputs in order, in groups of about ``num_bytes`` bytes.

    Rows and errors are those of ``iter(inputs)``. A file must not be truncated while its rows are
    in use.
    """
    columns = inputs.reading.columns
    only_texts = columns.names == [columns.text] and inputs.reading.unique is None
    rows = _new_rows()

    def read(name: str, kind: Format | None, reading: Reading) -> Iterator[int]:
        if only_texts and kind in ("txt", "jsonl") and inputs.is_file(name):
            with open_packed(name) as (stream, packed):
                data = _content(stream) if packed is None else b""
                if packed is None and data[:2] not in _UTF_16_MARKS:
                    lines = _MappedLines(data, Place(shown_name(name), reading), kind)
                    while lines.read(rows, num_bytes):
                        yield 1
                    return
        for row in inputs.read(name, kind, reading):
            rows.add_text(row.text, len(row.text))
            yield 1

    for _ in inputs.each_file(read):
        if rows.num_bytes >= num_bytes:
            yield rows
            rows = _new_rows()
    if len(rows):
        yield rows


def _new_rows() -> _native.TextRows:
    try:
        from encoder_engine import _native
    except ImportError as error:
        raise MissingExtensionError(
            f"reading files for a tokenizer needs the native extension ({error}); build it with: "
            "pip install ."
        ) from error
    return _native.TextRows()


def _content(stream: BinaryIO) -> bytes | mmap.mmap:
    """Return a file's bytes, memory-mapped if the file is large."""
    if os.fstat(stream.fileno()).st_size < _MAPPED_BYTES:
        return stream.read()
    return mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ)


class _MappedLines:
    """Reads the lines of a file in memory into rows, and keeps its position."""

    def __init__(self, data: bytes | mmap.mmap, place: Place, kind: Format) -> None:
        self._data, self._place = data, place
        self._json = JsonLines(place) if kind == "jsonl" else None
        self._lines = self._json or TextLines(place)
        self._at = len(BYTE_ORDER_MARK) if data[:3] == BYTE_ORDER_MARK else 0
        self._number = 0
        self._wanted = _MOST_BYTES
        self._left = False  # the next line is one that the extension left
        place.reading.meter.num_bytes += self._at

    def read(self, rows: _native.TextRows, num_bytes: int) -> bool:
        """Add rows until ``rows`` has ``num_bytes`` bytes; return False at the end of the file."""
        while self._at < len(self._data):
            # After a blank line, what follows decides whether the line is a bad row.
            blank = self._json is not None and self._json.blank
            if self._left or blank:
                self._left = False
                if self._read_line(rows):
                    return True
            elif self._read_sound(rows, num_bytes):
                return True
        return False

    def _read_sound(self, rows: _native.TextRows, num_bytes: int) -> int:
        """Add rows of valid lines, up to the next invalid line; return their number."""
        reading = self._place.reading
        wanted = min(self._wanted, max(num_bytes - rows.num_bytes, 1))
        end, count = rows.add_lines(
            self._data,
            self._at,
            wanted,
            column=None if self._json is None else reading.columns.text,
            most_bytes=self._lines.limit,
            most_characters=reading.max_characters,
        )
        taken, self._at = end - self._at, end
        self._number += count
        reading.meter.num_bytes += taken
        self._left = taken < wanted and end < len(self._data)
        self._wanted = _LEAST_BYTES if self._left else min(4 * self._wanted, _MOST_BYTES)
        return count

    def _read_line(self, rows: _native.TextRows) -> bool:
        """Read one line as ``iter(inputs)`` does; return whether it was a row."""
        place, begin = self._place, self._at
        self._number += 1
        place.number, place.row = self._number, self._number - 1
        self._at = self._data.find(b"\n", begin) + 1 or len(self._data)
        size = self._at - begin
        place.reading.meter.num_bytes += size
        try:
            row = self._lines.row(
                self._data[begin : self._at] if size <= self._lines.limit else None
            )
        except RowError as error:
            place.reading.skip(error)
            return False
        if row is not None:
            rows.add_text(row.text, size)
        return row is not None
