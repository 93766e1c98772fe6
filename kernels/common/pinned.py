"""Temporary overrides of launch shapes, for tuning."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from collections.abc import Iterator

Launch = TypeVar("Launch")
_pinned: dict[str, Any] = {}


def pinned(kernel: str, launch: Launch) -> Launch:
    """Return the launch shape set by :func:`pin` for a kernel, or ``launch`` if none is set."""
    found: Launch = _pinned.get(kernel, launch)
    return found


@contextmanager
def pin(**launches: Any) -> Iterator[None]:
    """Override launch shapes, by kernel name, for the whole process while the context lasts."""
    before = dict(_pinned)
    _pinned.update(launches)
    try:
        yield
    finally:
        _pinned.clear()
        _pinned.update(before)
