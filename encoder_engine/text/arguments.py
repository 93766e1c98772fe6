"""Checks of arguments: integers, and sequences of texts."""

from __future__ import annotations

import operator
from collections.abc import Iterable, Mapping, Set
from typing import TYPE_CHECKING, Any

from encoder_engine.errors import InputError, TextError
from encoder_engine.strings import from_arrow
from encoder_engine.text.extension import extension

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["check_integer", "sequence_of_texts", "to_integer"]


def to_integer(value: object, name: str) -> int:
    """Return an argument as an int. Raises :class:`InputError` for any other type."""
    try:
        if isinstance(value, bool):
            raise TypeError
        return operator.index(value)  # type: ignore[arg-type]
    except TypeError:
        kind = type(value).__name__
        raise InputError(f"{name} is {kind} {value!r}, expected an integer") from None


def check_integer(value: object, name: str, *, least: int) -> int:
    """Return an argument as an int from ``least`` to 2^31 - 1; raises :class:`InputError`."""
    number = to_integer(value, name)
    if not least <= number < 2**31:
        raise InputError(f"{name} is {number}, expected at least {least} and less than 2^31")
    return number


def sequence_of_texts(texts: Any, name: str) -> Sequence[Any]:
    """Return texts as a list or tuple; those of memory-mapped files are returned unchanged.

    Raises :class:`TextError` for a str, for bytes and for what is no iterable, and
    :class:`InputError` for a set or mapping, which has no fixed order.
    """
    if isinstance(texts, list | tuple | extension().TextRows):
        return texts
    if isinstance(texts, str):
        raise TextError(f"{name} is one str; wrap it in a list, or use encode() for one text")
    if isinstance(texts, Set | Mapping):
        raise InputError(f"{name} is {type(texts).__name__}, whose order is not fixed; pass a list")
    if isinstance(texts, bytes | bytearray) or not isinstance(texts, Iterable):
        raise TextError(f"{name} is {type(texts).__name__}, expected an iterable of str")
    return list(from_arrow(texts))
