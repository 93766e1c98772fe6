"""Vocabularies in the C++ extension's memory, without a Python object for each piece.

The classes stand in for the dict and the tuples of a specification: they compare equal to these and
pickle as these.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import ItemsView, Iterator, Mapping, Sequence, ValuesView
from typing import TYPE_CHECKING, Generic, TypeVar, overload

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    from encoder_engine import _native

__all__ = ["NativeMerges", "NativePieces", "NativeScores", "NativeVocabulary"]

T = TypeVar("T")
# No id is above it, and the extension takes no greater number.
MAX_NUMBER = 2**31 - 1


class NativeVocabulary(Mapping[str, int]):
    """A mapping of tokens to ids, in ascending order of ids; a repeated token has its last id.

    Attributes:
        native: the tokens in the extension, from which models are built.
    """

    def __init__(self, native: _native.Vocabulary) -> None:
        self.native = native

    @property
    def largest_id(self) -> int:
        """The largest token id; -1 for an empty vocabulary."""
        ids = self.native.ids()
        return int(ids[-1]) if len(ids) else -1

    def token_of(self, number: int) -> str | None:
        """Return the token with an id; ``None``: there is none."""
        return self.native.token_of(number) if 0 <= number <= MAX_NUMBER else None

    def __getitem__(self, token: str) -> int:
        number = self.native.id_of(token) if isinstance(token, str) else None
        if number is None:
            raise KeyError(token)
        return number

    def __len__(self) -> int:
        return self.native.num_distinct

    def __iter__(self) -> Iterator[str]:
        return iter(self._as_dict())

    def items(self) -> ItemsView[str, int]:
        """Return tokens and ids, reading all of them from the extension at once."""
        return self._as_dict().items()

    def values(self) -> ValuesView[int]:
        """Return the ids, reading all of them from the extension at once."""
        return self._as_dict().values()

    def _as_dict(self) -> dict[str, int]:
        return dict(zip(self.native.texts(), self.native.ids().tolist(), strict=True))

    def __reduce__(self) -> tuple[type[dict[str, int]], tuple[dict[str, int]]]:
        return dict, (self._as_dict(),)

    def __repr__(self) -> str:
        return f"NativeVocabulary({len(self)} tokens)"


class _NativeSequence(Sequence[T], Generic[T]):
    """A sequence that equals, hashes and pickles as the tuple of its values."""

    @abstractmethod
    def _at(self, place: int) -> T:
        """Return the value at an index."""

    @overload
    def __getitem__(self, index: int) -> T: ...
    @overload
    def __getitem__(self, index: slice) -> tuple[T, ...]: ...
    def __getitem__(self, index: int | slice) -> T | tuple[T, ...]:
        places = range(len(self))[index]
        return self._at(places) if isinstance(places, int) else tuple(self)[index]

    def __eq__(self, other: object) -> bool:
        if isinstance(other, tuple | _NativeSequence):
            return len(self) == len(other) and tuple(self) == tuple(other)
        return NotImplemented

    def __hash__(self) -> int:
        return hash(tuple(self))

    def __reduce__(self) -> tuple[type[tuple[T, ...]], tuple[tuple[T, ...]]]:
        return tuple, (tuple(self),)


class NativePieces(_NativeSequence[str]):
    """The pieces of a vocabulary; a piece's index is its id.

    Attributes:
        vocab: a mapping from the same pieces to their ids.
    """

    def __init__(self, vocab: NativeVocabulary) -> None:
        self.vocab = vocab

    def _at(self, place: int) -> str:
        return self.vocab.native.text(place)

    def __len__(self) -> int:
        return self.vocab.native.num_tokens

    def __iter__(self) -> Iterator[str]:
        return iter(self.vocab.native.texts())


class NativeMerges(_NativeSequence[tuple[str, str]]):
    """BPE merges, highest priority first; the first access reads all of them.

    Attributes:
        native: the merges in the extension, from which models are built; a model keeps them.
    """

    def __init__(self, native: _native.Merges) -> None:
        self.native = native

    def _at(self, place: int) -> tuple[str, str]:
        return self.native.texts()[place]

    def __len__(self) -> int:
        return self.native.num_merges

    def __iter__(self) -> Iterator[tuple[str, str]]:
        return iter(self.native.texts())


class NativeScores(_NativeSequence[float]):
    """The scores of a vocabulary's pieces; the index is the piece's id.

    Attributes:
        array: the scores, float64.
    """

    def __init__(self, array: npt.NDArray[np.float64]) -> None:
        self.array = array

    def _at(self, place: int) -> float:
        return float(self.array[place])

    def __len__(self) -> int:
        return len(self.array)

    def __iter__(self) -> Iterator[float]:
        return iter(self.array.tolist())
