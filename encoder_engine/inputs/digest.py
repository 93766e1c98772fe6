"""A digest of rows that does not depend on their windows."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from encoder_engine.inputs.identifiers import Identifier

__all__ = ["RowsDigest"]


class RowsDigest:
    """Computes the SHA-256 of rows, independent of their windows."""

    def __init__(self) -> None:
        self._digest = hashlib.sha256()

    def add(
        self,
        texts: Sequence[str | tuple[str, str]],
        identifiers: Sequence[Identifier | None],
    ) -> None:
        """Add rows; their lengths are hashed too, so different lists have different digests.

        A row is a text, or both texts of a pair.
        """
        parts: list[bytes] = []
        for text, identifier in zip(texts, identifiers, strict=True):
            if isinstance(text, str):
                data = text.encode()
            else:
                first = text[0].encode()
                parts.append(b"%d " % len(first))
                data = first + text[1].encode()
            parts += (b"%d %s\n" % (len(data), repr(identifier).encode()), data)
        self._digest.update(b"".join(parts))

    def hexdigest(self) -> str:
        """Return the digest of all rows so far."""
        return self._digest.hexdigest()
