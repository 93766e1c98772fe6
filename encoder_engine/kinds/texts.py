"""Validates texts while they are iterated; every error names the row."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Set, Sized

import numpy as np

from encoder_engine.dataclass import dataclass
from encoder_engine.errors import InputError, TextError
from encoder_engine.strings import from_arrow


@dataclass(frozen=True, kw_only=True)
class Texts:
    """An iterator over texts to embed, which validates each text.

    count: the number of texts; None for an iterable without a length.
    single: whether the caller passed one ``str``.
    """

    rows: Iterator[str]
    count: int | None
    single: bool


def open_texts(texts: object) -> Texts:
    """Open a text, or any ordered iterable of texts: list, generator, NumPy or Arrow array of str.

    Raises :class:`TextError` for a value that is not a text (with its row, during iteration) and
    :class:`InputError` for a set, a mapping, a data frame, and an array that is not [N].
    """
    texts = _array_texts(texts) if isinstance(texts, np.ndarray) else from_arrow(texts)
    if isinstance(texts, str):
        return Texts(rows=_checked([texts]), count=1, single=True)
    if isinstance(texts, Mapping):
        raise InputError(
            f"texts is a {type(texts).__name__}, whose keys or whose values may be meant; pass "
            "list(texts.values()), or list(texts)"
        )
    if isinstance(texts, Set):
        raise InputError(
            f"texts is a {type(texts).__name__}, which has no row order; pass a list, for example "
            "sorted(texts)"
        )
    if isinstance(texts, (bytes, bytearray)) or not isinstance(texts, Iterable):
        raise TextError(f"texts must be a str or an iterable of str, {_what_is_wrong(texts)}")
    if (num_axes := getattr(texts, "ndim", 1)) != 1:
        # Iterating a data frame yields the names of its columns.
        raise InputError(
            f"texts is a {type(texts).__name__} of {num_axes} dimensions, expected [N]; pass one "
            "column of texts"
        )
    count = len(texts) if isinstance(texts, Sized) else None
    return Texts(rows=_checked(texts), count=count, single=False)


def _array_texts(array: np.ndarray) -> object:
    if array.dtype.kind not in "UOT":
        raise TextError(
            f"texts is a numpy array of {array.dtype}, not of str; "
            "convert it with .astype(str), or decode bytes first"
        )
    if array.ndim > 1:
        raise InputError(
            f"texts is a numpy array of shape {list(array.shape)}, expected [N]; use .ravel()"
        )
    return array.tolist()


def _checked(texts: Iterable[object]) -> Iterator[str]:
    for row, text in enumerate(texts):
        if not isinstance(text, str):
            raise TextError(f"text {row} must be a str, {_what_is_wrong(text)}", row=row)
        yield text


def _what_is_wrong(value: object) -> str:
    if value is None:
        return "got None; drop the row or put an empty text"
    if isinstance(value, (bytes, bytearray)):
        return f"got {type(value).__name__}; decode it first, for example with .decode('utf-8')"
    if isinstance(value, float) and np.isnan(value):
        return "got NaN, a missing value; drop the row or put an empty text"
    if isinstance(value, (list, tuple)):
        return f"got a {type(value).__name__} within; embed its texts one by one"
    return f"got {type(value).__name__}"
