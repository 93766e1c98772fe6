"""Finds semantic duplicates: texts whose vectors are near those of a kept text (Abbas et al. 2023).

Every text is compared with all kept ones, block by block: the time grows with their product.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from encoder_engine.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

    import numpy.typing as npt

    Floats = npt.NDArray[np.float32]

__all__ = ["SemanticDuplicates"]

# Kept vectors that are compared at once.
BLOCK = 8192


class SemanticDuplicates:
    """Remembers the vectors of kept texts, and finds those whose cosine reaches ``threshold``."""

    def __init__(self, threshold: float = 0.95) -> None:
        if not 0.0 < threshold <= 1.0:
            raise InputError(
                f"the cosine of semantic duplicates must be above 0 and up to 1, got {threshold}"
            )
        self.threshold = threshold
        self._blocks: list[Floats] = []
        self._places: list[int] = []
        self._num_seen = 0
        self._last: dict[str, npt.NDArray[Any]] = {}

    def add(self, vectors: npt.NDArray[np.floating]) -> list[int | None]:
        """Return for each vector [n, D] the nearest kept text that it is near, by place, or None.

        Vectors of zeros are never near.
        """
        wide = np.asarray(vectors, np.float32)
        norms = np.linalg.norm(wide, axis=1, keepdims=True)
        unit = np.asarray(wide / np.where(norms > 0, norms, 1.0), np.float32)
        best, nearest = self._nearest_kept(unit)
        among = unit @ unit.T
        kept: list[int] = []
        found: list[int | None] = []
        for row in range(len(unit)):
            cosine, place = float(best[row]), int(nearest[row])
            if kept:
                inner = int(among[row, kept].argmax())
                if among[row, kept[inner]] > cosine:
                    cosine, place = float(among[row, kept[inner]]), self._num_seen + kept[inner]
            if cosine >= self.threshold:
                found.append(place)
            else:
                found.append(None)
                kept.append(row)
        self._last = {
            "num_texts": np.array(len(unit)),
            "places": np.array([self._num_seen + row for row in kept], np.int64),
            "vectors": unit[kept],
        }
        self.restore(self._last)
        return found

    def added(self) -> dict[str, npt.NDArray[Any]]:
        """Return what the last call of :meth:`add` has remembered, for :meth:`restore`."""
        return self._last

    def restore(self, added: Mapping[str, npt.NDArray[Any]]) -> None:
        """Remember what a call of :meth:`add` had; calls are restored in their order."""
        if len(added["places"]):
            self._blocks.append(added["vectors"])
            self._places += added["places"].tolist()
        self._num_seen += int(added["num_texts"])
        self._join_blocks()

    def _nearest_kept(self, unit: Floats) -> tuple[Floats, npt.NDArray[np.int64]]:
        """Return the greatest cosine with a kept text, and its place; -2 where there is none."""
        best = np.full(len(unit), -2.0, np.float32)
        nearest = np.zeros(len(unit), np.int64)
        places = np.array(self._places, np.int64)
        first = 0
        for block in self._blocks:
            cosines = unit @ block.T
            rows = cosines.argmax(1)
            values = cosines[np.arange(len(unit)), rows]
            better = values > best
            best[better] = values[better]
            nearest[better] = places[first + rows[better]]
            first += len(block)
        return best, nearest

    def _join_blocks(self) -> None:
        """Join the last blocks up to ``BLOCK`` vectors: few large products are faster."""
        while len(self._blocks) > 1 and len(self._blocks[-1]) + len(self._blocks[-2]) <= BLOCK:
            last = self._blocks.pop()
            self._blocks[-1] = np.concatenate([self._blocks[-1], last])
