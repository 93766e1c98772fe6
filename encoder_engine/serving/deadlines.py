"""Gives up requests at their deadlines, with few timers.

How it works: starting and cancelling a timer is a part of each request's cost. Here, requests with
the same timeout share one when their deadlines fall into the same hundredth of that timeout. It
ends with the last of them, so that a request is given up at most 1 % late, and never early.
"""

from __future__ import annotations

import asyncio
import math
import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from encoder_engine.serving.request import Request

__all__ = ["Deadlines"]

# Timers during the time that a request is given, which counts as a millisecond at least.
TIMERS_A_TIMEOUT, LEAST_SECONDS = 100, 0.001


class Deadlines:
    """Requests by the timer of their deadline; used only in the event loop's thread.

    expire: called with each request that is left at its deadline.
    """

    def __init__(self, expire: Callable[[Request], None]) -> None:
        self._expire = expire
        # By timeout, and the number of the hundredth of it in which the deadline is.
        self._requests: dict[tuple[float, int], set[Request]] = {}

    def add(self, request: Request) -> set[Request]:
        """Give up a request at its deadline, unless it is taken out of the returned set before."""
        seconds = max(request.seconds, LEAST_SECONDS)
        if seconds == math.inf:
            return set()
        number = int((request.arrived_at + seconds) * TIMERS_A_TIMEOUT / seconds) + 1
        place = seconds, number
        found = self._requests.get(place)
        if found is None:
            found = self._requests[place] = set()
            end = number * seconds / TIMERS_A_TIMEOUT
            asyncio.get_running_loop().call_later(end - time.monotonic(), self._end, place)
        found.add(request)
        return found

    def clear(self) -> None:
        """Forget all requests: the timers of another event loop do not end here."""
        self._requests.clear()

    def _end(self, place: tuple[float, int]) -> None:
        for request in self._requests.pop(place, ()):
            self._expire(request)
