"""Unpacks compressed inputs as streams of bytes: .gz, .xz and .zst, in constant memory."""

from __future__ import annotations

import gzip
import io
import lzma
from typing import TYPE_CHECKING, BinaryIO, cast

from encoder_engine.inputs.columnar import import_pyarrow

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer

__all__ = ["unpack"]

_CHUNK_BYTES = 2**16
# xz -9 needs 65 MiB to be unpacked; a header may ask for 4 GiB.
_XZ_MEMORY = 2**30
# Null bytes in fours may stand between and after the streams of a file (.xz format, 2.2).
_XZ_PADDING = 4


def unpack(stream: io.BufferedReader, compression: str | None) -> BinaryIO:
    """Return the unpacked bytes of a file; concatenated streams are read as one.

    Reading damaged data, or data after a stream that is not a stream, raises ``OSError``,
    ``EOFError``, ``zlib.error`` or ``lzma.LZMAError``. An empty file counts as truncated, because a
    packed empty file still has a header.
    """
    if compression is not None and not stream.peek(1):
        raise EOFError("the file is empty")
    if compression == "gz":
        return cast("BinaryIO", gzip.GzipFile(fileobj=stream))
    if compression == "xz":
        return io.BufferedReader(_XzReader(stream), _CHUNK_BYTES)
    if compression == "zst":
        pyarrow = import_pyarrow("reading .zst")
        return io.BufferedReader(pyarrow.CompressedInputStream(stream, "zstd"))
    return stream


class _XzReader(io.RawIOBase):
    """Unpacks .xz streams; unlike ``lzma.LZMAFile``, it does not ignore garbage after the first."""

    def __init__(self, stream: BinaryIO) -> None:
        self._stream = stream
        self._decompressor = self._begin()
        self._packed = b""
        self._in_stream = False

    @staticmethod
    def _begin() -> lzma.LZMADecompressor:
        return lzma.LZMADecompressor(memlimit=_XZ_MEMORY)

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: WriteableBuffer) -> int:
        """Unpack the next bytes; 0 at the end of the file."""
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
            unpacked = self._decompressor.decompress(self._packed, len(view))
            self._packed = b""
            if unpacked:
                view[: len(unpacked)] = unpacked
                return len(unpacked)

    def _next_stream(self) -> None:
        """Skip the padding after a stream; only another stream may follow."""
        packed, padding = self._decompressor.unused_data, 0
        while True:
            packed = packed or self._stream.read(_CHUNK_BYTES)
            left = packed.lstrip(b"\0")
            padding += len(packed) - len(left)
            if left or not packed:
                break
            packed = b""
        if padding % _XZ_PADDING:
            raise lzma.LZMAError(f"{padding} null bytes follow a stream, expected a multiple of 4")
        self._packed, self._in_stream = left, False
        self._decompressor = self._begin()
