"""Compares the recorded settings of a folder with those of a run that resumes in it."""

from __future__ import annotations

from typing import Any, NamedTuple

__all__ = ["Difference", "differences"]


class Difference(NamedTuple):
    """A changed value; ``name``: its dotted key; None: there is no value."""

    name: str
    before: Any
    now: Any

    def __str__(self) -> str:
        """Return a text with both values."""
        return f"{self.name} was {self.before!r:.80}, is {self.now!r:.80}"


def differences(before: Any, now: Any, name: str = "") -> list[Difference]:
    """List the differences of two JSON values, by the keys of their innermost objects.

    >>> differences({"a": {"b": 1}}, {"a": {"b": 2, "c": 3}})
    [Difference(name='a.b', before=1, now=2), Difference(name='a.c', before=None, now=3)]
    """
    if not isinstance(before, dict) or not isinstance(now, dict):
        return [] if before == now else [Difference(name, before, now)]
    found = []
    for key in sorted({*before, *now}):
        inner = f"{name}.{key}" if name else key
        found += differences(before.get(key), now.get(key), inner)
    return found
