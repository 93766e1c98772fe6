"""Returns freed memory to the operating system."""

from __future__ import annotations

import ctypes
import sys
from functools import cache
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["trim_heap"]


def trim_heap() -> None:
    """Return the free pages of this process's heap to the system; does nothing without glibc.

    Reading, casting and packing weights of many sizes fragments the heap, at times by more than the
    model's size. Other threads wait for the call when they allocate.
    """
    _find_trim()(0)


@cache
def _find_trim() -> Callable[[int], Any]:
    if sys.platform != "linux":
        return _do_nothing
    trim: Callable[[int], Any] = getattr(ctypes.CDLL(None), "malloc_trim", _do_nothing)
    return trim


def _do_nothing(_: int) -> None:
    return
