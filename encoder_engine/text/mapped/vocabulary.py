"""A vocabulary that stays in the compiled file it was read from."""

from __future__ import annotations

from collections.abc import ItemsView, Iterator, Mapping, Sequence, ValuesView
from typing import TYPE_CHECKING, Any

import numpy as np

from encoder_engine.errors import TokenizerFileError

if TYPE_CHECKING:
    import numpy.typing as npt

    from encoder_engine import _native

__all__ = ["MappedVocabulary", "mapped_array", "vocabulary_sections"]


def vocabulary_sections(tokens: Sequence[str], ids: Sequence[int]) -> dict[str, bytes]:
    """Lay tokens out, in rising order of their ids, as :class:`MappedVocabulary` reads them.

    Of a token that occurs twice the last id is found.
    """
    texts = [token.encode() for token in tokens]
    order = sorted(range(len(texts)), key=texts.__getitem__)
    found = [
        place
        for place, following in zip(order, [*order[1:], None], strict=True)
        if following is None or texts[place] != texts[following]
    ]
    return {
        "tokens": b"".join(texts),
        "ends": np.cumsum([len(text) for text in texts], dtype="<u4").tobytes(),
        "ids": np.array(ids, dtype="<i4").tobytes(),
        "order": np.array(found, dtype="<u4").tobytes(),
    }


class MappedVocabulary(Mapping[str, int]):
    """Tokens and their ids, in rising order of the ids; a token is found by bisection.

    Attributes:
        model: the model that was built from this vocabulary, or ``None`` before it is.
        largest_id: -1 of no token.

    Raises:
        TokenizerFileError: the arrays contradict each other.

    """

    def __init__(
        self, *, tokens: memoryview, ends: memoryview, ids: memoryview, order: memoryview
    ) -> None:
        self._tokens = tokens
        self._ends = mapped_array(ends, "<u4")
        self._ids = mapped_array(ids, "<i4")
        self._order = mapped_array(order, "<u4")
        self.model: _native.WordPieceModel | _native.UnigramModel | None = None
        count = len(self._ids)
        self.largest_id = int(self._ids[-1]) if count else -1
        last = int(self._ends[-1]) if len(self._ends) else 0
        if (
            len(self._ends) != count
            or len(self._order) > count
            or last != len(tokens)
            or bool(np.any(self._ends[1:] < self._ends[:-1]))
            or bool(np.any(self._ids[1:] <= self._ids[:-1]))
            or (count > 0 and int(self._ids[0]) < 0)
            or (len(self._order) > 0 and int(self._order.max()) >= count)
        ):
            raise TokenizerFileError("the vocabulary is damaged")

    @property
    def num_tokens(self) -> int:
        """How many tokens there are, those that occur twice counted twice."""
        return len(self._ids)

    def text(self, place: int) -> str:
        """Give a token by its place in the order of the ids."""
        try:
            return self._bytes(place).decode()
        except UnicodeDecodeError as error:
            raise TokenizerFileError(
                f"token {place} of the compiled vocabulary is damaged: {error}"
            ) from error

    def token_of(self, number: int) -> str | None:
        """Give the token that has an id, or ``None``."""
        place = int(np.searchsorted(self._ids, number))
        if place == len(self._ids) or int(self._ids[place]) != number:
            return None
        token = self.text(place)
        if self.get(token) == number:
            return token
        # Of a token that occurs twice, only the last id counts.
        if len(self._order) < len(self._ids):
            return None
        raise TokenizerFileError(f"token {number} of the compiled vocabulary is damaged")

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
        return len(self._order)

    def __iter__(self) -> Iterator[str]:
        return map(self.text, self._places().tolist())

    def items(self) -> ItemsView[str, int]:
        """Give tokens and ids, all of them read at once."""
        return dict(zip(self, self._ids[self._places()].tolist(), strict=True)).items()

    def values(self) -> ValuesView[int]:
        """Give the ids, all of them read at once."""
        numbers = self._ids[self._places()].tolist()
        return dict(zip(numbers, numbers, strict=True)).values()

    def __reduce__(self) -> tuple[type[dict[str, int]], tuple[dict[str, int]]]:
        return dict, (dict(self.items()),)

    def __repr__(self) -> str:
        return f"MappedVocabulary({len(self)} tokens)"

    def _places(self) -> npt.NDArray[np.uint32]:
        return np.sort(self._order)

    def _bytes(self, place: int) -> bytes:
        start = int(self._ends[place - 1]) if place else 0
        return bytes(self._tokens[start : int(self._ends[place])])


def mapped_array(section: memoryview, dtype: str) -> npt.NDArray[Any]:
    """Read a section as an array, where it lies."""
    if len(section) % np.dtype(dtype).itemsize:
        raise TokenizerFileError(f"a section has {len(section)} bytes, which are no {dtype} values")
    return np.frombuffer(section, dtype=dtype)
