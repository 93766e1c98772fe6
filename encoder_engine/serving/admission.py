"""Admits a request with all its texts, or refuses it at once: by bytes, size and expected wait.

How it works: lanes (threads that compute batches) serve the clients in turn. The limit therefore
applies not to the whole queue, but to what is computed before the last text of a request
(:meth:`Load.before`). A small request is admitted beside a large one of another client, however
long the large one takes.
"""

from __future__ import annotations

import asyncio
from bisect import bisect_right
from itertools import accumulate
from typing import TYPE_CHECKING

from encoder_engine.errors import (
    DrainingError,
    InputError,
    OverloadedError,
    RequestSizeError,
)

if TYPE_CHECKING:
    from collections.abc import Hashable, Sequence

    from encoder_engine.serving.dispatcher import Dispatcher
    from encoder_engine.serving.options import ServingOptions
    from encoder_engine.serving.scheduler import Waiting
    from encoder_engine.serving.signals import Signals

__all__ = ["Admission"]

# The limit where max_queue_tokens is not given, in seconds of computing: for one request, and for
# what is computed before its last text.
QUEUE_SECONDS = 10.0
# A request is read while less than this share of max_queue_tokens precedes it. Above the share,
# most requests would be read and tokenized only to be refused.
FULL_SHARE = 0.95


class Admission:
    """Counts a service's unanswered calls and their bytes, and refuses calls beyond the limits.

    num_calls: admitted calls that are not answered yet.
    num_bytes: the bytes of these calls' texts.
    answer_bytes: the bytes of answers that are being computed or sent.
    empty: an event that is set while every call is answered.
    """

    def __init__(self, options: ServingOptions, dispatcher: Dispatcher, signals: Signals) -> None:
        self._options, self._dispatcher, self._signals = options, dispatcher, signals
        self.num_calls = self.num_bytes = self.answer_bytes = 0
        self.closed = False
        self.empty = asyncio.Event()
        self.empty.set()

    def begin(self, num_bytes: int) -> None:
        """Count a call and the bytes of its texts until :meth:`end`.

        Raises :class:`DrainingError` while the service is shutting down, :class:`OverloadedError`
        where too many calls or bytes are queued, and :class:`InputError` for texts with more bytes
        than the whole queue may have.
        """
        most = self._options.max_queue_bytes
        self._check_calls()
        if num_bytes > most:
            raise InputError(
                f"the request's texts have {num_bytes} bytes; the limit is {most}: split it"
            )
        if self.num_bytes + num_bytes > most:
            raise self.overloaded(
                f"{self.num_bytes} bytes of texts are queued; the limit is {most}"
            )
        self.num_calls += 1
        self.num_bytes += num_bytes
        self.empty.clear()

    def end(self, num_bytes: int) -> None:
        """Stop counting a call and the bytes of its texts, once it is answered."""
        self.num_bytes -= num_bytes
        self.num_calls -= 1
        if self.num_calls == 0:
            self.empty.set()

    def begin_answer(self, num_bytes: int) -> None:
        """Add the bytes of an answer to :attr:`answer_bytes`.

        The caller subtracts them once the answer is sent.

        Raises :class:`InputError` for an answer that exceeds the limit alone, and
        :class:`OverloadedError` for one that exceeds it together with the other answers.
        """
        most = self._options.max_answer_bytes
        if num_bytes > most:
            raise InputError(
                f"the answer would have {num_bytes} bytes; the limit is {most}: send fewer texts"
            )
        if self.answer_bytes + num_bytes > most:
            raise self.overloaded(
                f"answers of {self.answer_bytes} bytes are being computed or sent; the limit is "
                f"{most}"
            )
        self.answer_bytes += num_bytes

    def check_queue(self, client: Hashable) -> None:
        """Refuse a client's new request, before its body is read, where the queue is too long.

        Raises :class:`DrainingError` while the service is shutting down, and
        :class:`OverloadedError` where a request of any size would wait too long.
        """
        self._check_calls()
        self._check_turn(client, 0, None)

    def check_size(self, model: str, costs: Sequence[float], lengths: Sequence[int]) -> None:
        """Raise :class:`RequestSizeError` for a request that exceeds the queue's limit by itself.

        costs, lengths: the cost and the number of tokens of each of its texts.
        """
        most, unit = self._options.max_queue_tokens, "tokens"
        sizes: Sequence[float] = lengths
        if most is None:
            unit = "s of computing"
            sizes = [self._dispatcher.seconds(model, cost) for cost in costs]
        limit = QUEUE_SECONDS if most is None else most
        # Not sum(), which rounds otherwise from Python 3.12 on: what is said to fit must fit.
        totals = list(accumulate(sizes))
        if len(sizes) > 1 and totals[-1] > limit:
            fit = max(1, bisect_right(totals, limit))
            raise RequestSizeError(
                f"the request needs about {totals[-1]:.4g} {unit}; the limit is {limit:g}: send "
                f"at most {fit} of its {len(sizes)} texts at a time"
            )

    def check_wait(
        self,
        request: Waiting,
        model: str,
        seconds: float,
        cost: float | None = None,
        num_tokens: int | None = None,
    ) -> None:
        """Raise :class:`OverloadedError` for a request that would wait too long in the queue.

        An idle service accepts every request. Shutdown refuses no call that :meth:`begin` admitted.

        seconds: the time left until the request's deadline.
        cost, num_tokens: of all its texts; None: not known yet.
        """
        if not self._dispatcher.scheduler.num_texts:
            return
        flow, priority, dispatcher = request.flow, request.priority, self._dispatcher
        own = None if cost is None else dispatcher.seconds(model, cost)
        size = own if self._options.max_queue_tokens is None else num_tokens
        self._check_turn(flow, priority, size)
        turn = dispatcher.turn_seconds(flow, priority, own)
        if turn + (own or 0.0) > seconds:
            raise self.overloaded(
                f"the request's turn ends in about {turn:.1f} s, but its deadline is in "
                f"{seconds:.3g} s",
                turn,
            )

    def _check_turn(self, flow: Hashable, priority: int, size: float | None) -> None:
        """Raise :class:`OverloadedError` if a new request would wait behind too much in the queue.

        What counts is what the lanes compute before the request's last text: seconds, or tokens if
        ``max_queue_tokens`` is set.

        flow, priority: the request's client and priority.
        size: how much the request itself takes, in the same unit; None: unknown yet.
        """
        dispatcher, most = self._dispatcher, self._options.max_queue_tokens
        if not dispatcher.scheduler.num_texts:
            return
        if most is None:
            turn = dispatcher.turn_seconds(flow, priority, size)
            if turn > QUEUE_SECONDS:
                raise self.overloaded(
                    f"about {turn:.1f} s are computed before this request; the limit is "
                    f"{QUEUE_SECONDS:g} s",
                    turn,
                )
            return
        tokens = dispatcher.turn_tokens(flow, priority, size)
        if tokens + size > most if size is not None else tokens >= FULL_SHARE * most:
            raise self.overloaded(
                f"{tokens:.0f} tokens are computed before this request; the limit is {most}",
                dispatcher.turn_seconds(flow, priority, None),
            )

    def _check_calls(self) -> None:
        """Raise :class:`DrainingError` in a shutdown, :class:`OverloadedError` for many calls."""
        self._check_open()
        most = self._options.max_requests
        if self.num_calls >= most:
            raise self.overloaded(f"{self.num_calls} requests are waiting; the limit is {most}")

    def _check_open(self) -> None:
        if self.closed:
            self._signals.rejected["draining"] += 1
            raise DrainingError("the service is shutting down; send the request to another one")

    def overloaded(self, reason: str, seconds: float | None = None) -> OverloadedError:
        """Count a refused request, and return the error to raise, which states when to try again.

        seconds: the time until then; None: the time that all waiting texts take.
        """
        self._signals.rejected["overloaded"] += 1
        wait = self._dispatcher.wait_seconds() if seconds is None else seconds
        return OverloadedError(f"{reason}; try again later", retry_after=max(0.1, wait))
