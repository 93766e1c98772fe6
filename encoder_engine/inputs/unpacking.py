"""Decompresses inputs as byte streams in constant memory: .gz, .xz, .zst, .bz2, .zip."""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import shutil
import tempfile
import zipfile
from functools import partial
from typing import TYPE_CHECKING, Any, BinaryIO, cast

from encoder_engine.errors import ReadError
from encoder_engine.inputs.columnar import import_pyarrow

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextlib import ExitStack

    from _typeshed import WriteableBuffer

__all__ = ["unpack"]

_CHUNK_BYTES = 2**16
# xz -9 needs 65 MiB to be unpacked; a header may ask for 4 GiB.
_XZ_MEMORY = 2**30
# Null bytes in fours may stand between and after the streams of a file (.xz format, 2.2).
_XZ_PADDING = 4


def unpack(stream: BinaryIO, compression: str | None, stack: ExitStack) -> BinaryIO:
    """Return a stream of a file's decompressed bytes; concatenated streams are read as one.

    Reading damaged data, or trailing data that is not a stream, raises ``OSError``,
    ``EOFError``, ``zlib.error``, ``lzma.LZMAError`` or ``zipfile.BadZipFile``. An empty file counts
    as truncated, because a packed empty file still has a header. Raises :class:`ReadError` for a
    .zip archive of several files.

    stack: closes the files that are opened.
    """
    if compression is None:
        return stream
    if not cast("io.BufferedReader", stream).peek(1):
        raise EOFError("the file is empty")
    if compression == "gz":
        return cast("BinaryIO", gzip.GzipFile(fileobj=stream))
    if compression == "zst":
        pyarrow = import_pyarrow("reading .zst")
        return io.BufferedReader(pyarrow.CompressedInputStream(stream, "zstd"))
    if compression == "zip":
        return _only_member(stream, stack)
    if compression == "bz2":
        reader = _StreamsReader(stream, bz2.BZ2Decompressor, padding=b"")
    else:
        begin = partial(lzma.LZMADecompressor, memlimit=_XZ_MEMORY)
        reader = _StreamsReader(stream, begin, padding=b"\0")
    return io.BufferedReader(reader, _CHUNK_BYTES)


def _only_member(stream: BinaryIO, stack: ExitStack) -> BinaryIO:
    """Return the single file of a .zip archive; the archive's index is at its end."""
    if not stream.seekable():
        held = stack.enter_context(tempfile.TemporaryFile())  # noqa: SIM115
        shutil.copyfileobj(stream, held, _CHUNK_BYTES)
        stream = held
    archive = stack.enter_context(zipfile.ZipFile(stream))
    names = [entry.filename for entry in archive.infolist() if not entry.is_dir()]
    if len(names) != 1:
        raise ReadError(
            f"a .zip archive with {len(names)} files ({', '.join(names):.100}), expected one; "
            "unpack it, and name the files"
        )
    try:
        return cast("BinaryIO", stack.enter_context(archive.open(names[0])))
    except (NotImplementedError, RuntimeError) as error:  # an unknown method, a password
        raise zipfile.BadZipFile(str(error)) from error


class _StreamsReader(io.RawIOBase):
    """Decompresses .xz or .bz2 streams; Python's own readers ignore garbage after the first stream.

    begin: a function that makes a stream's decompressor.
    padding: the byte that may be between streams, four at a time.
    """

    def __init__(self, stream: BinaryIO, begin: Callable[..., Any], *, padding: bytes) -> None:
        self._stream, self._begin, self._padding = stream, begin, padding
        self._decompressor = begin()
        self._packed = b""
        self._in_stream = False

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: WriteableBuffer) -> int:
        """Decompress the next bytes into a buffer; return 0 at the end of the file."""
        view = memoryview(buffer)
        while True:
            if self._decompressor.eof:
                self._next_stream()
            if self._decompressor.needs_input and not self._packed:
                self._packed = self._stream.read(_CHUNK_BYTES)
                if not self._packed and self._in_stream:
                    raise EOFError("the file ends within a stream")
                if not self._packed:
                    return 0
            self._in_stream = True
            unpacked: bytes = self._decompressor.decompress(self._packed, len(view))
            self._packed = b""
            if unpacked:
                view[: len(unpacked)] = unpacked
                return len(unpacked)

    def _next_stream(self) -> None:
        """Skip the padding after a stream; only another stream may follow."""
        packed, padding = self._decompressor.unused_data, 0
        while True:
            packed = packed or self._stream.read(_CHUNK_BYTES)
            left = packed.lstrip(self._padding)
            padding += len(packed) - len(left)
            if left or not packed:
                break
            packed = b""
        if padding % _XZ_PADDING:
            raise lzma.LZMAError(f"{padding} null bytes follow a stream, expected a multiple of 4")
        self._packed, self._in_stream = left, False
        self._decompressor = self._begin()
