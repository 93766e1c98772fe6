"""A vocabulary that stays in the compiled file it was read from."""

from __future__ import annotations

from collections.abc import ItemsView, Iterator, Mapping, ValuesView
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    import numpy.typing as npt

__all__ = ["MappedVocabulary", "vocabulary_sections"]


def vocabulary_sections(vocab: Mapping[str, int]) -> dict[str, bytes]:
    """Lay a vocabulary out as the arrays that :class:`MappedVocabulary` reads."""
    ordered = sorted(vocab.items(), key=lambda item: item[1])
    tokens = [token.encode() for token, _ in ordered]
    ends = np.cumsum([len(token) for token in tokens], dtype=np.uint32)
    order = sorted(range(len(tokens)), key=tokens.__getitem__)
    return {
        "tokens": b"".join(tokens),
        "ends": ends.astype("<u4").tobytes(),
        "ids": np.array([number for _, number in ordered], dtype="<i4").tobytes(),
        "order": np.array(order, dtype="<u4").tobytes(),
    }


class MappedVocabulary(Mapping[str, int]):
    """Tokens and their ids, in rising order of the ids; a token is found by bisection.

    Attributes:
        model: the image of the model that was built from this vocabulary.
    """

    def __init__(
        self,
        *,
        tokens: memoryview,
        ends: memoryview,
        ids: memoryview,
        order: memoryview,
        model: memoryview,
    ) -> None:
        self._tokens = tokens
        self._ends: npt.NDArray[np.uint32] = np.frombuffer(ends, dtype="<u4")
        self._ids: npt.NDArray[np.int32] = np.frombuffer(ids, dtype="<i4")
        self._order: npt.NDArray[np.uint32] = np.frombuffer(order, dtype="<u4")
        self.model = model

    @property
    def largest_id(self) -> int:
        """The largest id, or -1 of no token."""
        return int(self._ids[-1]) if len(self._ids) else -1

    def __getitem__(self, token: str) -> int:
        if isinstance(token, str):
            wanted = token.encode("utf-8", "surrogatepass")
            low, high = 0, len(self._order)
            while low < high:
                middle = (low + high) // 2
                if self._bytes(int(self._order[middle])) < wanted:
                    low = middle + 1
                else:
                    high = middle
            if low < len(self._order):
                place = int(self._order[low])
                if self._bytes(place) == wanted:
                    return int(self._ids[place])
        raise KeyError(token)

    def __len__(self) -> int:
        return len(self._ids)

    def __iter__(self) -> Iterator[str]:
        for place in range(len(self._ids)):
            yield self._bytes(place).decode()

    def items(self) -> ItemsView[str, int]:
        """Give tokens and ids, all of them read at once."""
        return dict(zip(self, self._ids.tolist(), strict=True)).items()

    def values(self) -> ValuesView[int]:
        """Give the ids, all of them read at once."""
        return dict(zip(self._ids.tolist(), self._ids.tolist(), strict=True)).values()

    def __reduce__(self) -> tuple[type[dict[str, int]], tuple[dict[str, int]]]:
        return dict, (dict(self.items()),)

    def __repr__(self) -> str:
        return f"MappedVocabulary({len(self)} tokens)"

    def _bytes(self, place: int) -> bytes:
        start = int(self._ends[place - 1]) if place else 0
        return bytes(self._tokens[start : int(self._ends[place])])
