"""Admits requests whole, or refuses them at once: by bytes, by tokens, by the expected wait."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from encoder_engine.errors import DrainingError, InputError, OverloadedError

if TYPE_CHECKING:
    from encoder_engine.serving.dispatcher import Dispatcher
    from encoder_engine.serving.options import ServingOptions
    from encoder_engine.serving.signals import Signals

__all__ = ["Admission"]

# The longest queue, in seconds of computing, where max_queue_tokens is not given.
QUEUE_SECONDS = 10.0
# A queue with this share of max_queue_tokens is full. Above it most requests would be read and
# tokenized only to be refused.
FULL_SHARE = 0.95


class Admission:
    """Counts the calls of a service, their texts and answers, and refuses those beyond the limits.

    num_calls: admitted calls that are not answered yet.
    num_bytes: the bytes of their texts.
    answer_bytes: the bytes of answers that are being computed or sent.
    empty: set while there is no call.
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
        where too many calls or bytes are queued, and :class:`InputError` for more bytes than the
        limit alone.
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
        """Forget a call."""
        self.num_bytes -= num_bytes
        self.num_calls -= 1
        if self.num_calls == 0:
            self.empty.set()

    def begin_answer(self, num_bytes: int) -> None:
        """Count the bytes of an answer until they are taken off :attr:`answer_bytes`.

        Raises :class:`InputError` for an answer that exceeds the limit alone, and
        :class:`OverloadedError` for one that exceeds it together with the others.
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

    def check_queue(self) -> None:
        """Refuse a new request of any size where the queue is full: nothing of it need be read.

        Raises :class:`DrainingError` while the service is shutting down, and
        :class:`OverloadedError`.
        """
        self._check_calls()
        self._check_tokens()

    def _check_tokens(self) -> float:
        """Refuse a request of any size by the tokens that wait; return the seconds they need."""
        scheduler, most = self._dispatcher.scheduler, self._options.max_queue_tokens
        if not scheduler.num_texts:
            return 0.0
        wait = self._dispatcher.wait_seconds()
        if most is not None:
            if scheduler.num_tokens >= FULL_SHARE * most:
                raise self._too_many_tokens(most)
        elif wait > QUEUE_SECONDS:
            raise self.overloaded(
                f"the queue needs about {wait:.1f} s; the limit is {QUEUE_SECONDS:g} s"
            )
        return wait

    def check_wait(self, model: str, cost: float, num_tokens: int, seconds: float) -> None:
        """Refuse a request that would wait too long; an idle service accepts every request.

        seconds: the time left until the request's deadline. Raises :class:`OverloadedError`. A call
        that :meth:`begin` admitted is also computed while the service is shutting down.
        """
        wait = self._check_tokens()
        scheduler, most = self._dispatcher.scheduler, self._options.max_queue_tokens
        if not scheduler.num_texts:
            return
        if most is not None and scheduler.num_tokens + num_tokens > most:
            raise self._too_many_tokens(most)
        if wait + self._dispatcher.seconds(model, cost) > seconds:
            raise self.overloaded(
                f"the queue needs about {wait:.1f} s, but the request's deadline is in "
                f"{seconds:.3g} s"
            )

    def _check_calls(self) -> None:
        """Refuse a new call where as many as the limit are not answered."""
        self._check_open()
        most = self._options.max_requests
        if self.num_calls >= most:
            raise self.overloaded(f"{self.num_calls} requests are waiting; the limit is {most}")

    def _check_open(self) -> None:
        if self.closed:
            self._signals.rejected["draining"] += 1
            raise DrainingError("the service is shutting down; send the request to another one")

    def _too_many_tokens(self, most: int) -> OverloadedError:
        queued = self._dispatcher.scheduler.num_tokens
        return self.overloaded(f"{queued} tokens are queued; the limit is {most}")

    def overloaded(self, reason: str) -> OverloadedError:
        """Count a refusal, and return its error with the time after which to try again."""
        self._signals.rejected["overloaded"] += 1
        return OverloadedError(
            f"{reason}; try again later", retry_after=max(0.1, self._dispatcher.wait_seconds())
        )
