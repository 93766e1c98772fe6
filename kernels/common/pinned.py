"""Launch shapes pinned for a while in the place of the tables' own, to find better ones."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from collections.abc import Iterator

Launch = TypeVar("Launch")
_pinned: dict[str, Any] = {}


def pinned(kernel: str, launch: Launch) -> Launch:
    """Return what is pinned for a kernel, or ``launch``, which is the table's."""
    found: Launch = _pinned.get(kernel, launch)
    return found


@contextmanager
def pin(**launches: Any) -> Iterator[None]:
    """Launch kernels so, by name, for the whole process; what was before comes back at the end."""
    before = dict(_pinned)
    _pinned.update(launches)
    try:
        yield
    finally:
        _pinned.clear()
        _pinned.update(before)
