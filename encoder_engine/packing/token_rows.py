"""Token ids of several texts, packed, as NumPy arrays: a batch before it is on a device."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol, Self

import numpy as np

from encoder_engine.dataclass import dataclass

if TYPE_CHECKING:
    import numpy.typing as npt

__all__ = [
    "EncodedRows",
    "IdArray",
    "InputRows",
    "RowArray",
    "TokenRows",
    "TokenizedRows",
    "WindowRows",
    "take",
]

IdArray = np.ndarray[Any, np.dtype[np.int32]]
RowArray = np.ndarray[Any, np.dtype[np.intp]]


class TokenizedRows(Protocol):
    """The attributes of a tokenizer's result that :class:`TokenRows` reads."""

    ids: IdArray
    cu_seqlens: IdArray

    @property
    def type_ids(self) -> IdArray:
        """The token type id of each token, int32 [T]."""

    @property
    def has_types(self) -> bool:
        """True if tokens may have token type ids other than 0."""


class WindowRows(TokenizedRows, Protocol):
    """The attributes of tokenized texts, such as an Encoding, that a model reads."""

    def __len__(self) -> int:
        """Return the number of rows."""

    @property
    def lengths(self) -> IdArray:
        """The number of tokens of each row, int32 [B]."""

    @property
    def truncated(self) -> np.ndarray[Any, np.dtype[np.bool_]]:
        """True for each row that lost tokens, bool [B]."""


@dataclass(kw_only=True, eq=False)
class EncodedRows:
    """Token ids that do not come from a tokenizer call, with the attributes of WindowRows.

    ids: int32 [T].
    cu_seqlens: the offsets of the rows, int32 [B + 1].
    truncated: True for each row that lost tokens or characters, bool [B].
    types: the token type id of each token, int32 [T]; None: all 0.
    """

    ids: IdArray
    cu_seqlens: IdArray
    truncated: np.ndarray[Any, np.dtype[np.bool_]]
    types: IdArray | None = None

    def __len__(self) -> int:
        """Return the number of rows."""
        return len(self.cu_seqlens) - 1

    @property
    def lengths(self) -> IdArray:
        """The number of tokens of each row, int32 [B]."""
        return self.cu_seqlens[1:] - self.cu_seqlens[:-1]

    @property
    def has_types(self) -> bool:
        """True if tokens may have token type ids other than 0."""
        return self.types is not None

    @property
    def type_ids(self) -> IdArray:
        """The token type id of each token, int32 [T]."""
        return np.zeros_like(self.ids) if self.types is None else self.types


@dataclass(kw_only=True, eq=False)
class InputRows(EncodedRows):
    """Inputs that a pipeline tokenizes itself; the ids here only count tokens, for batching.

    inputs: the original B inputs.
    """

    inputs: list[Any]


@dataclass(frozen=True, kw_only=True, eq=False)
class TokenRows:
    """B sequences of T token ids, concatenated.

    ids: int32 [T].
    cu_seqlens: the offsets of the sequences, int32 [B + 1].
    type_ids: the token type id of each token, int32 [T]; None: all 0.
    unattended: the number of last tokens of each sequence that no token attends to, int32 [B];
    they themselves attend to the tokens before the first of them. None: 0.
    """

    ids: IdArray
    cu_seqlens: IdArray
    type_ids: IdArray | None = None
    unattended: IdArray | None = None

    @classmethod
    def of(cls, encoding: TokenizedRows) -> Self:
        """Return the token rows of a tokenizer's result."""
        types = encoding.type_ids if encoding.has_types else None
        return cls(ids=encoding.ids, cu_seqlens=encoding.cu_seqlens, type_ids=types)

    def __len__(self) -> int:
        """Return the number of sequences."""
        return len(self.cu_seqlens) - 1

    @property
    def lengths(self) -> IdArray:
        """The number of tokens of each sequence, int32 [B]."""
        return self.cu_seqlens[1:] - self.cu_seqlens[:-1]

    def take(self, rows: RowArray) -> TokenRows:
        """Return the sequences with these indices, in their order; a single one is a view."""
        ids, cu_seqlens = take(self.ids, self.cu_seqlens, rows)
        types = None if self.type_ids is None else take(self.type_ids, self.cu_seqlens, rows)[0]
        unattended = None if self.unattended is None else self.unattended[rows]
        return TokenRows(ids=ids, cu_seqlens=cu_seqlens, type_ids=types, unattended=unattended)


def take(
    values: IdArray, cu_seqlens: IdArray, rows: npt.NDArray[np.intp]
) -> tuple[IdArray, IdArray]:
    """Gather ``rows`` of a packed array: their values [t] and offsets [b + 1].

    Several rows are copied; a single row is a view.
    """
    if len(rows) == 1:
        start, stop = cu_seqlens[rows[0]], cu_seqlens[rows[0] + 1]
        return values[start:stop], np.array([0, stop - start], dtype=np.int32)
    starts, stops = cu_seqlens[rows].astype(np.int64), cu_seqlens[rows + 1].astype(np.int64)
    lengths = stops - starts
    ends = np.zeros(len(rows) + 1, dtype=np.int64)
    np.cumsum(lengths, out=ends[1:])
    index = np.arange(ends[-1]) + np.repeat(starts - ends[:-1], lengths)
    return values[index], ends.astype(np.int32)
