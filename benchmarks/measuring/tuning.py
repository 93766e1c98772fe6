"""Finds each peer's fastest setting, with which it is measured."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

Value = TypeVar("Value")


def fastest(values: Iterable[Value], work: Callable[[Value], object]) -> Value:
    """Call ``work`` with every value, after a warm-up; return the value with the least time."""
    choices = list(values)
    work(choices[0])
    seconds = {}
    for value in choices:
        start = time.perf_counter()
        work(value)
        seconds[value] = time.perf_counter() - start
    return min(choices, key=lambda value: seconds[value])
