"""Splits a stream of rows into windows; the types of tokenized and computed windows."""

from __future__ import annotations

import re
from itertools import islice
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from encoder_engine.dataclass import dataclass
from encoder_engine.errors import InputError, TextError
from encoder_engine.strings import describe_surrogate, find_surrogate

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    import numpy as np

    from encoder_engine.packing.token_rows import RowArray, WindowRows

__all__ = [
    "WINDOW_CHARACTERS",
    "WINDOW_TEXTS",
    "EmbeddedWindow",
    "TokenizedWindow",
    "first_rows",
    "located_error",
    "windows",
]

Row = TypeVar("Row")

# A window is tokenized, sorted by length and computed as a whole; its size bounds the memory.
WINDOW_TEXTS = 4096
WINDOW_CHARACTERS = 16_000_000


@dataclass(frozen=True, kw_only=True, eq=False)
class EmbeddedWindow:
    """The results and counts of a window, which is consecutive rows (texts or pairs) of a stream.

    vectors: [n, D], or the sparse vectors, token vectors or scores of n rows, in their order.
    first_row: the index of the first row in the stream.
    truncated: bool [n]: whether each row was truncated.
    num_tokens: the number of tokens of the tokenized rows.
    num_padded_tokens: the number of tokens that the same batches would have had with padding.
    tokenize_seconds, encode_seconds: the wall time of tokenization and of computation.
    """

    vectors: Any
    first_row: int
    truncated: np.ndarray[Any, np.dtype[np.bool_]]
    num_tokens: int
    num_padded_tokens: int
    tokenize_seconds: float
    encode_seconds: float

    @property
    def num_truncated(self) -> int:
        """The number of truncated rows."""
        return int(self.truncated.sum())


class TokenizedWindow(NamedTuple):
    """Consecutive rows of a stream, tokenized.

    ``first_row``: the index of its first row in the stream; ``seconds``: the wall time of
    tokenization.
    """

    encoding: WindowRows
    first_row: int
    seconds: float


def windows(rows: Iterator[Row], characters_of: Callable[[Row], int]) -> Iterator[list[Row]]:
    """Cut a stream of rows into lists of at most 4,096 rows and about 16 million characters each.

    ``characters_of``: a function from a row to its number of characters.
    """
    window: list[Row] = []
    characters = 0
    for row in rows:
        window.append(row)
        characters += characters_of(row)
        if len(window) == WINDOW_TEXTS or characters >= WINDOW_CHARACTERS:
            yield window
            window, characters = [], 0
    if window:
        yield window


def first_rows(rows: RowArray, limit: int = 5) -> str:
    """Format row numbers for a message: the first ``limit`` of them, and how many more follow."""
    shown = ", ".join(str(int(row)) for row in islice(rows, limit))
    return shown if len(rows) <= limit else f"{shown} and {len(rows) - limit} more"


def located_error(error: InputError, window: list[Any], first_row: int) -> InputError:
    """Return an error that names a row of the stream, given one that names a row of ``window``.

    ``first_row``: the index of the window's first row in the stream.
    """
    if error.row is None:
        return error
    row, text = first_row + error.row, window[error.row]
    text = text if isinstance(text, str) else text[0]
    has_text = isinstance(error, TextError) and isinstance(text, str)
    place = find_surrogate(text) if has_text else None
    if place is None:
        named = re.sub(rf"\b(row|pair) {error.row} ", rf"\1 {row} ", str(error), count=1)
        return type(error)(named, row=row)
    described = describe_surrogate(text, place)
    return TextError(f"text {row} has {described}", row=row)
