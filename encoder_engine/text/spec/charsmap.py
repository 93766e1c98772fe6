"""Checks SentencePiece's compiled normalization rules before they are used.

The bytes hold the size of a trie, the trie (a double array of 32-bit units, as darts-clone makes
it), and the replacements. The trie's values point to replacements, each ended by a zero byte.
"""

from __future__ import annotations

import struct

import numpy as np

from encoder_engine.errors import TokenizerFileError

__all__ = ["check_charsmap"]

LEAF = 1 << 8
VALUE = 1 << 31


def check_charsmap(charsmap: bytes, where: str) -> None:
    """Raise :class:`TokenizerFileError` for damaged or empty rules; ``where``: their file."""

    def fail(message: str) -> TokenizerFileError:
        return TokenizerFileError(f"{where}: the precompiled charsmap is damaged: {message}")

    if len(charsmap) < 4:
        raise fail(f"it has {len(charsmap)} bytes")
    (size,) = struct.unpack_from("<I", charsmap)
    if size == 0 or size % 4 or size >= len(charsmap) - 4:
        raise fail(f"a trie of {size} bytes in {len(charsmap)}")
    replacements = charsmap[4 + size :]
    try:
        replacements.decode("utf-8")
    except UnicodeDecodeError as error:
        raise fail(f"a replacement is not UTF-8: {error}") from error
    if replacements[-1] != 0:
        raise fail("the last replacement has no end")
    units = np.frombuffer(charsmap, "<u4", count=size // 4, offset=4)
    places = np.flatnonzero((units & (VALUE | LEAF)) == LEAF)
    nodes = units[places]
    leaves = places ^ ((nodes >> 10).astype(np.int64) << ((nodes & (1 << 9)) >> 6))
    leaves = leaves[leaves < len(units)]  # units that nobody uses may point anywhere
    values = units[leaves]
    values = values[values & VALUE != 0] & (VALUE - 1)
    if values.size and int(values.max()) >= len(replacements):
        raise fail(f"a rule points to byte {int(values.max())} of {len(replacements)}")
    starts = np.frombuffer(replacements, np.uint8)[values]
    if np.any(starts & 0xC0 == 0x80):
        raise fail("a rule points into the middle of a character")
