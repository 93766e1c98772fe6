"""Deadlines share timers: nothing is given up early, twice, or more than 1 % and 3 ms late."""

from __future__ import annotations

import asyncio
import math
import random
import time
from concurrent.futures import Future
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from encoder_engine.serving import deadlines
from encoder_engine.serving.deadlines import LEAST_SECONDS, Deadlines
from encoder_engine.serving.request import Key, Request

if TYPE_CHECKING:
    from collections.abc import Callable


class Clock:
    """A time that is set, and the timers that were started, in milliseconds as uvloop's are."""

    def __init__(self) -> None:
        self.now = 1000.0
        self.timers: list[tuple[float, Callable[..., None], tuple[Any, ...]]] = []

    def monotonic(self) -> float:
        """Return the time."""
        return self.now

    def call_later(self, delay: float, call: Callable[..., None], *given: Any) -> None:
        """Start a timer."""
        end = math.floor(self.now * 1e3) + round(min(delay, 1e9) * 1e3)
        self.timers.append((end / 1e3, call, given))

    def advance(self, until: float) -> None:
        """Let time pass, and end the timers that are due."""
        while self.timers and min(end for end, _, _ in self.timers) <= until:
            number = min(range(len(self.timers)), key=lambda place: self.timers[place][0])
            end, call, given = self.timers.pop(number)
            self.now = max(self.now, end)
            call(*given)
        self.now = until


def request(arrived_at: float, seconds: float) -> Request:
    done: Any = Future[None]()
    key = Key("tiny", "embed", None)
    return Request(flow=0, key=key, texts=["a"], seconds=seconds, arrived_at=arrived_at, done=done)


Arrivals = st.lists(
    st.tuples(
        # Since the one before.
        st.floats(0.0, 2.0),
        st.sampled_from([0.0, 0.001, 0.05, 1.0, 60.0, 1e9, math.inf]) | st.floats(0.001, 1e4),
        # When it is answered, if it is.
        st.none() | st.floats(0.0, 100.0),
    ),
    min_size=1,
    max_size=60,
)


@settings(deadline=None)
@given(Arrivals)
def test_a_request_is_given_up_once_and_at_its_deadline(
    arrivals: list[tuple[float, float, float | None]],
) -> None:
    clock, ended = Clock(), dict[Request, float]()

    def expire(one: Request) -> None:
        assert one not in ended
        ended[one] = clock.now

    found = Deadlines(expire)
    answered = dict[Request, float]()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(deadlines, "time", clock)
        patch.setattr(deadlines, "asyncio", SimpleNamespace(get_running_loop=lambda: clock))
        added: list[Request] = []
        for pause, seconds, until in arrivals:
            clock.advance(clock.now + pause)
            added.append(request(clock.now, seconds))
            group = found.add(added[-1])
            if until is not None:
                answered[added[-1]] = clock.now + until
                clock.timers.append((clock.now + until, group.discard, (added[-1],)))
        clock.advance(1e8)
    for one in added:
        seconds = max(one.seconds, LEAST_SECONDS)
        deadline = one.arrived_at + seconds
        # A hundredth, and what a timer takes longer so that uvloop does not end it early.
        latest = deadline + seconds / 100 + 0.003
        # Rounding: one unit in the last place of the latest time, for each of a few operations.
        slack = 8 * math.ulp(latest) if latest < math.inf else 0.0
        if one in ended:
            assert deadline - slack <= ended[one] <= latest + slack
            assert answered.get(one, math.inf) >= ended[one]
        else:
            assert latest + slack >= min(answered.get(one, math.inf), 1e8)


def test_requests_share_timers_also_with_different_timeouts(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    clock = Clock()
    monkeypatch.setattr(deadlines, "time", clock)
    monkeypatch.setattr(deadlines, "asyncio", SimpleNamespace(get_running_loop=lambda: clock))
    found = Deadlines(lambda _: None)
    for _ in range(5000):
        clock.advance(clock.now + 0.001)
        found.add(request(clock.now, 60.0))
    # Of 60 seconds a step is 2^-2.
    assert len(clock.timers) == pytest.approx(5.0 / 0.25, abs=1)
    # Answered requests leave their timers, but those of all timeouts together are few.
    draw, before = random.Random(7), len(clock.timers)
    for _ in range(20_000):
        one = request(clock.now, 64.0 + 64.0 * draw.random())
        found.add(one).discard(one)
    assert len(clock.timers) - before <= 129


def test_what_is_forgotten_is_not_given_up_by_the_timers_of_an_ended_loop() -> None:
    ended: list[Request] = []
    found = Deadlines(ended.append)

    async def add(seconds: float) -> Request:
        loop = asyncio.get_running_loop()
        one = request(time.monotonic(), seconds)
        found.clear()
        found.add(one)
        await asyncio.sleep(0)
        assert loop.is_running()
        return one

    asyncio.run(add(0.2))

    async def serve() -> Request:
        one = await add(0.2)
        while not ended:
            await asyncio.sleep(0.01)
        return one

    assert asyncio.run(serve()) in ended
    assert len(ended) == 1
