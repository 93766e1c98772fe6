"""Comparing what a folder was begun with and what it is to go on with."""

from __future__ import annotations

from typing import Any, NamedTuple

__all__ = ["Difference", "differences"]


class Difference(NamedTuple):
    """A value that is not what it was; ``name`` is dotted, and None stands for none."""

    name: str
    before: Any
    now: Any

    def __str__(self) -> str:
        """Say both values."""
        return f"{self.name} was {self.before!r:.80}, is {self.now!r:.80}"


def differences(before: Any, now: Any, name: str = "") -> list[Difference]:
    """List what differs between two values of JSON, at the keys of their innermost objects.

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
