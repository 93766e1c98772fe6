"""Pieces, scores and kinds of a Unigram model that stay in the compiled file."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Generic, Literal, TypeVar, overload

import numpy as np

from encoder_engine.errors import TokenizerFileError
from encoder_engine.text.mapped.vocabulary import mapped_array

if TYPE_CHECKING:
    import numpy.typing as npt

    from encoder_engine.text.mapped.vocabulary import MappedVocabulary

__all__ = [
    "MappedBytes",
    "MappedKinds",
    "MappedPieces",
    "MappedScores",
    "kind_section",
    "score_section",
]

# In the file, a kind is its place here.
PieceKind = Literal["normal", "unknown", "control", "user_defined", "unused", "byte"]
KINDS: tuple[PieceKind, ...] = (
    "normal",
    "unknown",
    "control",
    "user_defined",
    "unused",
    "byte",
)
T = TypeVar("T")


class MappedSequence(Sequence[T], Generic[T]):
    """A sequence that equals, hashes and pickles as the tuple of its values."""

    @abstractmethod
    def at(self, place: int) -> T:
        """Give one value."""

    @overload
    def __getitem__(self, index: int) -> T: ...
    @overload
    def __getitem__(self, index: slice) -> tuple[T, ...]: ...
    def __getitem__(self, index: int | slice) -> T | tuple[T, ...]:
        places = range(len(self))[index]
        return self.at(places) if isinstance(places, int) else tuple(map(self.at, places))

    def __eq__(self, other: object) -> bool:
        if isinstance(other, tuple | MappedSequence):
            return len(self) == len(other) and tuple(self) == tuple(other)
        return NotImplemented

    def __hash__(self) -> int:
        return hash(tuple(self))

    def __reduce__(self) -> tuple[type[tuple[T, ...]], tuple[tuple[T, ...]]]:
        return tuple, (tuple(self),)


class MappedScores(MappedSequence[float]):
    """Scores, float64."""

    def __init__(self, section: memoryview) -> None:
        self._values = mapped_array(section, "<f8")
        if not np.isfinite(self._values).all():
            raise TokenizerFileError("a piece's score is not finite")

    def narrowed(self) -> npt.NDArray[np.float32]:
        """Copy all scores, as float32; one that is too large is a :class:`TokenizerFileError`."""
        if np.abs(self._values).max(initial=0.0) > np.finfo(np.float32).max:
            raise TokenizerFileError("a piece's score is not a float32")
        return self._values.astype(np.float32)

    def at(self, place: int) -> float:
        """Give the score of a piece."""
        return float(self._values[place])

    def __len__(self) -> int:
        return len(self._values)

    def __iter__(self) -> Iterator[float]:
        return iter(self._values.tolist())


class MappedKinds(MappedSequence[PieceKind]):
    """What kind each piece of a SentencePiece model is of."""

    def __init__(self, section: memoryview) -> None:
        self._values = mapped_array(section, "u1")
        if int(self._values.max(initial=0)) >= len(KINDS):
            raise TokenizerFileError("a piece is of no kind that is known")

    def at(self, place: int) -> PieceKind:
        """Give the kind of a piece."""
        return KINDS[int(self._values[place])]

    def count(self, value: object) -> int:
        """Count the pieces of a kind."""
        return len(self.places(value)) if value in KINDS else 0

    def places(self, kind: PieceKind) -> list[int]:
        """Give the pieces of a kind."""
        found: list[int] = np.flatnonzero(self._values == KINDS.index(kind)).tolist()
        return found

    def __len__(self) -> int:
        return len(self._values)

    def __iter__(self) -> Iterator[PieceKind]:
        return map(KINDS.__getitem__, self._values.tolist())


class MappedPieces(MappedSequence[str]):
    """Pieces by their ids.

    Attributes:
        vocab: the same pieces, to be looked up.
        scores: of the pieces, from which the model of ``vocab`` was built.
        kinds: of the pieces of a SentencePiece model.

    """

    def __init__(
        self, vocab: MappedVocabulary, scores: MappedScores, kinds: MappedKinds | None = None
    ) -> None:
        self.vocab = vocab
        self.scores = scores
        self.kinds = kinds
        count = vocab.num_tokens
        if vocab.largest_id != count - 1 or {len(scores), len(kinds or scores)} != {count}:
            raise TokenizerFileError("the pieces are damaged")

    def at(self, place: int) -> str:
        """Give a piece."""
        return self.vocab.text(place)

    def __len__(self) -> int:
        return self.vocab.num_tokens

    def __iter__(self) -> Iterator[str]:
        return map(self.vocab.text, range(len(self)))


class MappedBytes:
    """Bytes that are copied out of the file only when ``bytes()`` asks for them."""

    def __init__(self, section: memoryview) -> None:
        self._section = section

    def __bytes__(self) -> bytes:
        return bytes(self._section)

    def __eq__(self, other: object) -> bool:
        if isinstance(other, bytes | MappedBytes):
            return bytes(self) == bytes(other)
        return NotImplemented

    def __hash__(self) -> int:
        return hash(bytes(self))

    def __reduce__(self) -> tuple[type[bytes], tuple[bytes]]:
        return bytes, (bytes(self),)


def kind_section(kinds: Sequence[PieceKind]) -> bytes:
    """Lay kinds out as :class:`MappedKinds` reads them."""
    return bytes(map(KINDS.index, kinds))


def score_section(scores: Sequence[float]) -> bytes:
    """Lay scores out as :class:`MappedScores` reads them."""
    return np.asarray(scores, dtype="<f8").tobytes()
