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
    """Give back the free pages of this process' heap; elsewhere than with glibc nothing is done.

    A loop that reads, casts and lays out weights of many sizes leaves holes that the next ones do
    not fit into, at times more than the model. Other threads wait for it when they allocate.
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
