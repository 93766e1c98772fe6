"""Checks of integer arguments."""

from __future__ import annotations

import operator

from encoder_engine.errors import InputError

__all__ = ["check_integer", "to_integer"]


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
    """Return an argument as an int of at least ``least``. Raises :class:`InputError` otherwise."""
    number = to_integer(value, name)
    if not least <= number < 2**31:
        raise InputError(f"{name} is {number}, expected at least {least} and less than 2^31")
    return number
