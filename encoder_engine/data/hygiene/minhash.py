"""Finds near duplicates by MinHash and banded hashing (Broder 1997; Indyk & Motwani 1998).

How it works: the signature of a text has, for each of k hash functions, the minimal hash of its
shingles; two signatures agree in an element with a probability equal to the Jaccard similarity of
the texts. Signatures are cut into b bands of r numbers. Texts that share a band are compared by the
shingles themselves, so that no pair below the threshold counts as duplicates. Texts are read in
order: a text is a duplicate if it is near an earlier text that was kept; otherwise it is kept.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from encoder_engine.data.hygiene.shingles import Shingles, jaccard, stacked
from encoder_engine.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import Any

    import numpy.typing as npt

    from encoder_engine.data.hygiene.shingles import Hashes

__all__ = ["Bands", "NearDuplicates", "choose_bands", "signatures"]

NUM_HASHES = 128
# Shares of pairs at the threshold that may be missed.
MOST_MISSED = 0.05


class Bands(NamedTuple):
    """The division of a signature into ``number`` bands of ``rows`` numbers each."""

    number: int
    rows: int

    def found_share(self, similarity: float) -> float:
        """Return the probability that two texts of this Jaccard similarity share a band."""
        return float(1.0 - (1.0 - similarity**self.rows) ** self.number)


def choose_bands(threshold: float) -> Bands:
    """Return the bands with the most rows that miss at most 5% of text pairs at the threshold.

    ``threshold``: a Jaccard similarity. More rows per band mean fewer comparisons of dissimilar
    texts. Raises :class:`InputError` for a threshold that is not above 0 and up to 1.
    """
    if not 0.0 < threshold <= 1.0:
        raise InputError(
            f"the threshold of near duplicates must be above 0 and up to 1, got {threshold}"
        )
    for rows in range(NUM_HASHES, 0, -1):
        bands = Bands(NUM_HASHES // rows, rows)
        if 1.0 - bands.found_share(threshold) <= MOST_MISSED:
            return bands
    return Bands(NUM_HASHES, 1)


def signatures(sets: Sequence[Hashes], factors: Hashes, terms: Hashes) -> npt.NDArray[np.uint32]:
    """Return the MinHash signatures of non-empty sets of shingles, uint32 [n, k].

    factors, terms: uint64 [k], factors odd. Each hash function is the upper half of ``a x + b``
    modulo 2^64 (Dietzfelbinger et al. 1997).
    """
    found = np.empty((len(sets), len(factors)), np.uint32)
    if not len(sets):
        return found
    shingles, starts = stacked(sets)
    for column, (factor, term) in enumerate(zip(factors, terms, strict=True)):
        hashed = ((shingles * factor + term) >> np.uint64(32)).astype(np.uint32)
        found[:, column] = np.minimum.reduceat(hashed, starts)
    return found


class NearDuplicates:
    """Stores the shingles of kept texts, and finds texts that are near one of them.

    threshold: the Jaccard similarity of shingles from which texts are near.
    size: the number of words of a shingle.
    seed: the seed of the hash functions.

    Memory holds the shingles of kept texts, 8 bytes for each word, and their bands.
    """

    def __init__(self, threshold: float = 0.8, *, size: int = 5, seed: int = 0) -> None:
        self.threshold = threshold
        self.bands = choose_bands(threshold)
        self._shingles = Shingles(size)
        generator = np.random.default_rng(seed)
        drawn = generator.integers(0, 2**64, (3, NUM_HASHES), dtype=np.uint64)
        self._factors, self._terms = drawn[0] | np.uint64(1), drawn[1]
        self._mixing = drawn[2] | np.uint64(1)
        self._kept: dict[int, Hashes] = {}
        self._buckets: list[dict[int, list[int]]] = [{} for _ in range(self.bands.number)]
        # Shingles and band keys of the last call of start, and which of its texts were kept.
        self._sets: list[Hashes] = []
        self._keys: list[list[int]] = []
        self._new: list[tuple[int, int]] = []

    def start(self, texts: Sequence[str]) -> None:
        """Hash the next texts; :meth:`find` and :meth:`keep` then refer to them by index."""
        self._sets = [self._shingles.of(text) for text in texts]
        filled = [number for number, one in enumerate(self._sets) if len(one)]
        self._keys, self._new = [[] for _ in texts], []
        keys = self._band_keys([self._sets[number] for number in filled])
        for number, row in zip(filled, keys.tolist(), strict=True):
            self._keys[number] = row

    def find(self, number: int) -> int | None:
        """Return the row index of the first kept text near text ``number``; None: none is near."""
        shingles, keys = self._sets[number], self._keys[number]
        near = {
            row
            for bucket, key in zip(self._buckets, keys, strict=False)
            for row in bucket.get(key, ())
        }
        for row in sorted(near):
            other = self._kept[row]
            least, most = sorted((len(shingles), len(other)))
            # The similarity is at most the ratio of the sizes.
            if least / most < self.threshold:
                continue
            if jaccard(shingles, other) >= self.threshold:
                return row
        return None

    def keep(self, number: int, row: int) -> None:
        """Record that text ``number`` of the last :meth:`start` is kept; ``row``: its row index."""
        if self._keys[number]:
            self._new.append((number, row))
            self._keep(row, self._sets[number], self._keys[number])

    def _keep(self, row: int, shingles: Hashes, keys: Sequence[int]) -> None:
        self._kept[row] = shingles
        for bucket, key in zip(self._buckets, keys, strict=True):
            bucket.setdefault(key, []).append(row)

    def added(self) -> dict[str, npt.NDArray[Any]]:
        """Return what was added to the state since the last :meth:`start`, for :meth:`restore`."""
        sets = [self._sets[number] for number, _ in self._new]
        keys = [self._keys[number] for number, _ in self._new]
        return {
            "rows": np.array([row for _, row in self._new], np.int64),
            "keys": np.array(keys, np.uint64).reshape(len(keys), self.bands.number),
            "sizes": np.array([len(one) for one in sets], np.int64),
            "shingles": np.concatenate([np.zeros(0, np.uint64), *sets]),
        }

    def restore(self, added: Mapping[str, npt.NDArray[Any]]) -> None:
        """Add to the state what :meth:`added` returned; restore all results in their order."""
        sets = np.split(added["shingles"], np.cumsum(added["sizes"])[:-1])
        kept = added["rows"].tolist()
        for row, keys, shingles in zip(kept, added["keys"].tolist(), sets, strict=False):
            self._keep(row, shingles, keys)

    def _band_keys(self, sets: Sequence[Hashes]) -> Hashes:
        """Return a hash of each band of each set of shingles, uint64 [n, b]; equal if bands are."""
        number, rows = self.bands
        signed = signatures(sets, self._factors, self._terms)[:, : number * rows]
        mixed = signed.astype(np.uint64) * self._mixing[: number * rows]
        mixed ^= mixed >> np.uint64(29)
        keys: Hashes = (
            (mixed * self._factors[: number * rows])
            .reshape(len(sets), number, rows)
            .sum(2, dtype=np.uint64)
        )
        return keys
