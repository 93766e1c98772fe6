"""The most tokens of a row: a caller's limit, a directory's, and the positions of a model."""

from __future__ import annotations

from encoder_engine.errors import InputError

__all__ = ["smallest", "token_limit"]


def token_limit(value: int | None, positions: int | None, *, least: int = 1) -> int | None:
    """Return the most tokens of a text: a limit, at most the model's positions; None: no limit.

    Raises :class:`InputError` for a limit that is not a whole number of at least ``least``.
    """
    whole = isinstance(value, int) and not isinstance(value, bool)
    if value is not None and (not whole or value < least):
        raise InputError(
            f"max_seq_length must be a whole number of at least {least}, got {value!r}"
        )
    return smallest(value, positions)


def smallest(*limits: int | None) -> int | None:
    """Return the smallest limit; None: there is none."""
    return min((limit for limit in limits if limit is not None), default=None)
