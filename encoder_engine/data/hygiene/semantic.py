"""Finds semantic duplicates: texts whose vectors are near those of a kept text (Abbas et al. 2023).

Every text is compared with all kept texts, block by block: the time is quadratic.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from encoder_engine.errors import InputError
from encoder_engine.vectors.similarity import unit_vectors

if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

    import numpy.typing as npt

    Floats = npt.NDArray[np.float32]

__all__ = ["SemanticDuplicates"]

# Kept vectors that are compared at once.
BLOCK = 8192


class SemanticDuplicates:
    """Stores vectors of kept texts; finds vectors whose cosine with one reaches ``threshold``."""

    def __init__(self, threshold: float = 0.95) -> None:
        if not 0.0 < threshold <= 1.0:
            raise InputError(
                f"the cosine of semantic duplicates must be above 0 and up to 1, got {threshold}"
            )
        self.threshold = threshold
        self._blocks: list[Floats] = []
        self._rows: list[int] = []
        # The last call of start: its vectors' directions, the cosines among them, the nearest text
        # kept before; and which of them were kept.
        self._unit = self._among = np.zeros((0, 0), np.float32)
        self._nearest: list[tuple[float, int]] = []
        self._new: list[tuple[int, int]] = []

    def start(self, vectors: npt.NDArray[np.floating]) -> None:
        """Compare the next texts' vectors [n, D] with those of kept texts.

        :meth:`find` and :meth:`keep` then refer to them by index.
        """
        self.restore(self.added())
        self._unit = unit_vectors(np.asarray(vectors, np.float32))
        self._among, self._new = self._unit @ self._unit.T, []
        best, nearest = self._nearest_kept(self._unit)
        self._nearest = list(zip(best.tolist(), nearest.tolist(), strict=True))

    def find(self, number: int) -> int | None:
        """Return the row index of the kept text nearest to vector ``number``; None: none near."""
        cosine, row = self._nearest[number]
        if self._new:
            among = self._among[number, [kept for kept, _ in self._new]]
            inner = int(among.argmax())
            if among[inner] > cosine:
                cosine, row = float(among[inner]), self._new[inner][1]
        return row if cosine >= self.threshold else None

    def keep(self, number: int, row: int) -> None:
        """Record that vector ``number`` of the last :meth:`start` is kept; ``row``: its row."""
        self._new.append((number, row))

    def added(self) -> dict[str, npt.NDArray[Any]]:
        """Return what was added to the state since the last :meth:`start`, for :meth:`restore`."""
        return {
            "rows": np.array([row for _, row in self._new], np.int64),
            "vectors": self._unit[[number for number, _ in self._new]],
        }

    def restore(self, added: Mapping[str, npt.NDArray[Any]]) -> None:
        """Add to the state what :meth:`added` returned; restore all results in their order."""
        if len(added["rows"]):
            self._blocks.append(added["vectors"])
            self._rows += added["rows"].tolist()
            self._join_blocks()

    def _nearest_kept(self, unit: Floats) -> tuple[Floats, npt.NDArray[np.int64]]:
        """Return each vector's greatest cosine with a kept text, and that text's row.

        The cosine is -2 where no text is kept yet.
        """
        best = np.full(len(unit), -2.0, np.float32)
        nearest = np.zeros(len(unit), np.int64)
        rows = np.array(self._rows, np.int64)
        first = 0
        for block in self._blocks:
            cosines = unit @ block.T
            inner = cosines.argmax(1)
            values = cosines[np.arange(len(unit)), inner]
            better = values > best
            best[better] = values[better]
            nearest[better] = rows[first + inner[better]]
            first += len(block)
        return best, nearest

    def _join_blocks(self) -> None:
        """Join the last blocks of vectors, up to ``BLOCK`` vectors: large products are faster."""
        while len(self._blocks) > 1 and len(self._blocks[-1]) + len(self._blocks[-2]) <= BLOCK:
            last = self._blocks.pop()
            self._blocks[-1] = np.concatenate([self._blocks[-1], last])
