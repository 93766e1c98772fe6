"""Ends requests at their deadlines, with few timers.

How it works: a timer for every request would have to be started and cancelled each time. Here,
requests share a timer when their deadlines fall into the same time step. The length of a step is
a power of two, and 1/256 to 1/128 of the request's timeout. The timer fires at the end of its step:
a request is ended less than 1 % and 3 ms late, and never early. A timer outlives the requests that
are answered; at most 257 timers of each step length exist, however many requests there were, of
whatever timeouts.
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

# A request's time is at least 2^7 steps long; less than a millisecond counts as a millisecond.
STEP_BITS, LEAST_SECONDS = 8, 0.001
# uvloop's timers end up to 1.5 ms early: it rounds their time to milliseconds, and the time of
# their start down.
EARLY_SECONDS = 0.002


class Deadlines:
    """The open requests, by the timer of their deadline; used only in the event loop's thread.

    expire: a function that is called with each request that is still open at its deadline.
    """

    def __init__(self, expire: Callable[[Request], None]) -> None:
        self._expire = expire
        # By the end of the step in which the deadline is.
        self._requests: dict[float, set[Request]] = {}

    def add(self, request: Request) -> set[Request]:
        """Expire a request at its deadline, unless the caller removes it from the returned set."""
        seconds = max(request.seconds, LEAST_SECONDS)
        if seconds == math.inf:
            return set()
        step = math.ldexp(1.0, math.frexp(seconds)[1] - STEP_BITS)
        end = math.ceil((request.arrived_at + seconds) / step) * step
        found = self._requests.get(end)
        if found is None:
            found = self._requests[end] = set()
            delay = end - time.monotonic() + EARLY_SECONDS
            asyncio.get_running_loop().call_later(delay, self._end, end)
        found.add(request)
        return found

    def clear(self) -> None:
        """Forget all requests, for example those of a former event loop."""
        self._requests.clear()

    def _end(self, end: float) -> None:
        for request in self._requests.pop(end, ()):
            self._expire(request)
