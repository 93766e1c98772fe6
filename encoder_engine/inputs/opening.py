"""Opens inputs as decompressed bytes, and detects their format by the first line."""

from __future__ import annotations

import csv
import errno
import io
import lzma
import re
import sys
import zipfile
import zlib
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, Literal, cast

from encoder_engine.errors import EncoderEngineError, ReadError
from encoder_engine.inputs.remote import is_remote, open_remote
from encoder_engine.inputs.unpacking import unpack

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from _typeshed import WriteableBuffer

__all__ = [
    "COMPRESSIONS",
    "STANDARD_INPUT",
    "Format",
    "compression_of",
    "open_packed",
    "open_source",
    "recognise",
    "shown_name",
]

Format = Literal["txt", "jsonl", "csv", "tsv", "parquet", "arrow"]
STANDARD_INPUT = "-"
# Suffixes after a format's own: texts.jsonl.gz.
COMPRESSIONS = ("gz", "xz", "zst", "bz2", "zip")
# The most bytes of the first line that decide on the format.
_HEAD_BYTES = 2**16
# No text begins with these: all but those of bzip2 are control characters or not UTF-8.
_PACKED = re.compile(
    rb"(?P<gz>\x1f\x8b\x08)|(?P<xz>\xfd7zXZ\0)|(?P<zst>\x28\xb5\x2f\xfd|[\x50-\x5f]\x2a\x4d\x18)"
    rb"|(?P<bz2>BZh[1-9](1AY&SY|\x17rE8P\x90))|(?P<zip>PK\x03\x04)"
)
_TABLE = re.compile(rb"(?P<parquet>PAR1)|(?P<arrow>ARROW1\0\0|\xff{4})")
# The first key is enough: a line that is broken behind it is refused as broken JSON.
_OBJECT = re.compile(rb'\s*\{\s*("(\\.|[^"\\])*"\s*:|\}\s*$)')
_DOCUMENT = re.compile(rb"\s*(\[\s*(\{.*)?|\{)\s*$", re.DOTALL)


def compression_of(name: str) -> str | None:
    """Return a file's compression by its suffix: gz, xz, zst, bz2, zip, or None."""
    ending = Path(name).suffix.lower().removeprefix(".")
    return ending if ending in COMPRESSIONS else None


def shown_name(name: str) -> str:
    """Return an input's name as messages show it."""
    return "standard input" if name == STANDARD_INPUT else name


@contextmanager
def open_source(name: str) -> Iterator[BinaryIO]:
    """Open an input; damage in a compressed file is found only while it is read."""
    with open_packed(name) as (stream, _):
        yield stream


@contextmanager
def open_packed(name: str) -> Iterator[tuple[BinaryIO, str | None]]:
    """Open an input with decompression; yield its stream and its compression.

    The suffix tells the compression; without such a suffix, the first bytes do. Raises
    :class:`ReadError` for an input that cannot be opened, read or decompressed.
    """
    with ExitStack() as stack:
        try:
            if name == STANDARD_INPUT:
                stream: BinaryIO = sys.stdin.buffer
            elif is_remote(name):
                stream = stack.enter_context(open_remote(name))[0]
            else:
                stream = stack.enter_context(Path(name).open("rb"))
        except OSError as error:
            mend = "; check its permissions" if error.errno == errno.EACCES else ""
            raise ReadError(f"{name} cannot be opened: {error.strerror}{mend}") from error
        packed = compression_of(name)
        try:
            if packed is None:
                head, stream = _peek(stream)
                found = _PACKED.match(head)
                packed = found.lastgroup if found else None
            yield unpack(stream, packed, stack), packed
        except EncoderEngineError:
            raise
        except (OSError, lzma.LZMAError, zlib.error, EOFError, zipfile.BadZipFile) as error:
            reason = f"unpacked ({error})" if packed else f"read: {error}"
            raise ReadError(f"{shown_name(name)} cannot be {reason}; copy it again") from error


def recognise(
    stream: BinaryIO, name: str, columns: Sequence[str]
) -> tuple[BinaryIO, Format | None]:
    """Return the stream, rewound, and its format by the first line; None: the format is unknown.

    JSON lines begin with an object, .csv and .tsv with a header that has all ``columns``.
    Raises :class:`ReadError` for a JSON document of several lines.
    """
    head, stream = _peek(stream)
    if (table := _TABLE.match(head)) is not None:
        return stream, cast("Format", table.lastgroup)
    head = head.removeprefix(b"\xef\xbb\xbf")
    if _OBJECT.match(head):
        return stream, "jsonl"
    if _DOCUMENT.match(head):
        raise ReadError(
            f"{shown_name(name)} is a JSON document, expected an object on each line; convert it "
            "(jq -c '.[]'), or read its lines as texts with input_format='txt'"
        )
    line = head.decode("utf-8", "replace").rstrip("\r\n")
    formats: dict[Format, str] = {"csv": ",", "tsv": "\t"}
    for known, delimiter in formats.items():
        if columns and set(columns) <= set(next(csv.reader([line], delimiter=delimiter), ())):
            return stream, known
    return stream, None


def _peek(stream: BinaryIO) -> tuple[bytes, BinaryIO]:
    """Return the first line, up to 64 KiB, and a stream that still begins with it."""
    if stream.seekable():
        place = stream.tell()
        head = stream.readline(_HEAD_BYTES)
        stream.seek(place)
        return head, stream
    head = stream.readline(_HEAD_BYTES)
    return head, io.BufferedReader(_Rejoined(head, cast("io.BufferedReader", stream)), _HEAD_BYTES)


class _Rejoined(io.RawIOBase):
    """A stream without seek, with bytes that were read from it put back in front."""

    def __init__(self, head: bytes, rest: io.BufferedReader) -> None:
        self._head, self._rest = head, rest

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: WriteableBuffer) -> int:
        view = memoryview(buffer)
        data = self._head[: len(view)] or self._rest.read1(len(view))
        self._head = self._head[len(view) :]
        view[: len(data)] = data
        return len(data)
