"""Memory that was let go of, given back to the system."""

from __future__ import annotations

import ctypes
import sys
from functools import cache
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["trim_heap"]


def trim_heap() -> None:
    """Give back the heap's free pages: glibc keeps them, and what is made next may not fit in.

    A loop that reads, casts and lays out weights of many sizes otherwise leaves holes, at times
    larger than the model. Elsewhere than with glibc nothing is done.
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
