"""Sets of hashed shingles (n-grams) of texts, and texts' normal form for exact comparison.

A shingle is a run of n words, or of n characters in scripts that do not separate words. Words are
compared without case, compatibility forms and white space, so that copies that differ only in
typesetting are equal.
"""

from __future__ import annotations

import hashlib
import re
import unicodedata
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy.typing as npt

    Hashes = npt.NDArray[np.uint64]

__all__ = ["DIGEST_BYTES", "Shingles", "jaccard", "normal_digest", "normal_form"]

# Han, Kana and Thai are written without spaces: each character is a word.
_UNSPACED = "\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u9fff\uf900-\ufaff"
_WORDS = re.compile(rf"[{_UNSPACED}]|[^\W{_UNSPACED}]+")
_FACTOR = np.uint64(0x9E3779B97F4A7C15)
DIGEST_BYTES = 16
# The most words whose hashes are kept, so that memory stays bounded.
_MOST_WORDS = 1 << 20


def normal_form(text: str) -> str:
    """Return a text in NFKC, without case, and with single spaces."""
    return " ".join(unicodedata.normalize("NFKC", text).casefold().split())


def normal_digest(text: str) -> bytes:
    """Return a digest of a text's normal form, 16 bytes."""
    encoded = normal_form(text).encode("utf-8", "surrogatepass")
    return hashlib.blake2b(encoded, digest_size=DIGEST_BYTES).digest()


class Shingles:
    """Hashes n-grams of ``size`` words to 64 bits; a shorter text is a single shingle."""

    def __init__(self, size: int) -> None:
        self.size = size
        self._hashes: dict[str, int] = {}

    def of(self, text: str) -> Hashes:
        """Return the distinct shingles of a text, ascending uint64 [n]; empty without words."""
        words = _WORDS.findall(normal_form(text))
        if not words:
            return np.zeros(0, np.uint64)
        hashed = np.fromiter(map(self._hash, words), np.uint64, len(words))
        size = min(self.size, len(words))
        found = np.zeros(len(words) - size + 1, np.uint64)
        for place in range(size):
            # A polynomial of the words in order, modulo 2^64.
            found = found * _FACTOR + hashed[place : len(hashed) - size + 1 + place]
        return np.unique(found)

    def _hash(self, word: str) -> int:
        known = self._hashes.get(word)
        if known is None:
            if len(self._hashes) >= _MOST_WORDS:
                self._hashes.clear()
            encoded = word.encode("utf-8", "surrogatepass")
            known = int.from_bytes(hashlib.blake2b(encoded, digest_size=8).digest(), "little")
            self._hashes[word] = known
        return known


def jaccard(one: Hashes, other: Hashes) -> float:
    """Return the Jaccard similarity of two sets of :class:`Shingles`; 0 if either is empty."""
    shared = len(np.intersect1d(one, other, assume_unique=True))
    union = len(one) + len(other) - shared
    return shared / union if union else 0.0


def stacked(sets: Sequence[Hashes]) -> tuple[Hashes, npt.NDArray[np.int64]]:
    """Return sets of shingles concatenated, and the index where each set starts."""
    starts = np.cumsum([0, *(len(one) for one in sets[:-1])]) if sets else np.zeros(0, np.int64)
    return (np.concatenate(sets) if sets else np.zeros(0, np.uint64)), starts
