"""Digests of input rows: one digest over many rows, and one digest per row."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path
from typing import TYPE_CHECKING

from encoder_engine.inputs.remote import is_remote

if TYPE_CHECKING:
    from collections.abc import Sequence

    from encoder_engine.inputs.identifiers import Identifier

__all__ = ["DIGEST_BYTES", "RowKeys", "RowsDigest"]

DIGEST_BYTES = 16


class RowsDigest:
    """Computes one SHA-256 over many rows, however calls of :meth:`add` divide them."""

    def __init__(self) -> None:
        self._digest = hashlib.sha256()

    def add(
        self, texts: Sequence[str | tuple[str, str]], identifiers: Sequence[Identifier | None]
    ) -> None:
        """Add rows; their lengths are hashed too, so different lists have different digests.

        A row is a text, or both texts of a pair.
        """
        parts: list[bytes] = []
        for text, identifier in zip(texts, identifiers, strict=True):
            start, data = _encoded(text)
            parts += (start, b"%d %s\n" % (len(data), repr(identifier).encode()), data)
        self._digest.update(b"".join(parts))

    def hexdigest(self) -> str:
        """Return the digest of all rows so far."""
        return self._digest.hexdigest()


def _encoded(content: str | tuple[str, str]) -> tuple[bytes, bytes]:
    """Return a row as bytes to hash, in two parts that are hashed one after the other.

    The first part is the length of a pair's first text, and empty for a single text. The second
    is the text, or both texts without a separator.
    """
    if isinstance(content, str):
        return b"", content.encode()
    first = content[0].encode()
    return b"%d " % len(first), first + content[1].encode()


class RowKeys:
    """Computes a 16-byte digest of a row, by which a later run recognises the row.

    by_id: rows have ids, so the digest covers only the text; False: also the file's name.
    generation: of the store; it is part of the digests of rows from standard input and pipes, which
        no other run then recognises.
    """

    def __init__(self, *, by_id: bool, generation: int) -> None:
        self.by_id = by_id
        self._generation = generation
        self._origins: dict[str, bytes] = {}

    def digest(self, content: str | tuple[str, str], source: str) -> bytes:
        """Return the 16-byte digest of a row: of its text or both texts.

        ``source``, the name of the row's file, is included unless rows have ids.
        """
        digest = hashlib.blake2b(b"".join(_encoded(content)), digest_size=DIGEST_BYTES)
        if not self.by_id:
            digest.update(self._origins.get(source) or self._origin(source))
        return digest.digest()

    def _origin(self, source: str) -> bytes:
        name = source
        if not is_remote(source):
            is_file = Path(source).is_file()
            name = str(Path(source).resolve()) if is_file else f"{self._generation}:{source}"
        self._origins[source] = b"\0" + os.fsencode(name)
        return self._origins[source]
