"""Tokenizes the texts of requests, and queues or refuses each request.

How it works: the requests that arrive in one pass of the event loop are tokenized together, by one
call of the tokenizer for each model, task and set of options. A call takes 10 us beside the few
that a text takes, and 25 us more where a lane waits for the GIL, which the tokenizer releases. If a
joint call fails, its requests are tokenized one by one, so that each fails by its own texts alone.
"""

from __future__ import annotations

import asyncio
import time
from itertools import compress
from typing import TYPE_CHECKING

from encoder_engine.serving.request import Key, count_characters

if TYPE_CHECKING:
    from collections.abc import Mapping

    from encoder_engine.packing.token_rows import WindowRows
    from encoder_engine.serving.admission import Admission
    from encoder_engine.serving.dispatcher import Dispatcher
    from encoder_engine.serving.models import ServedModel
    from encoder_engine.serving.request import Request
    from encoder_engine.serving.signals import Signals

__all__ = ["Intake"]


class Intake:
    """Tokenizes requests that arrive, and queues them; used only in the event loop's thread."""

    def __init__(
        self,
        models: Mapping[str, ServedModel],
        admission: Admission,
        dispatcher: Dispatcher,
        signals: Signals,
    ) -> None:
        self._models, self._admission = models, admission
        self._dispatcher, self._signals = dispatcher, signals
        self._arrived: list[Request] = []

    def add(self, request: Request) -> None:
        """Tokenize and queue a request with the others that arrive in this pass of the event loop.

        ``request.done`` gets the exception if it is refused.
        """
        if not self._arrived:
            asyncio.get_running_loop().call_soon(self._tokenize_arrived)
        self._arrived.append(request)

    def queue(self, group: list[Request], rows: WindowRows) -> None:
        """Queue requests that were tokenized together; ``rows``: the tokens of all their texts."""
        lengths, truncated = rows.lengths.tolist(), rows.truncated.tolist()
        start = 0
        for request in group:
            stop = start + len(request.texts)
            request.rows, request.first_row = rows, start
            request.num_tokens = lengths[start:stop]
            if True in truncated:
                request.truncated = tuple(compress(range(stop - start), truncated[start:stop]))
            start = stop
            if not request.done.done():
                try:
                    self._queue(request)
                except Exception as error:
                    request.done.set_exception(error)
        self._dispatcher.dispatch()

    def _tokenize_arrived(self) -> None:
        arrived, self._arrived = self._arrived, []
        groups: dict[tuple[Key, type], list[Request]] = {}
        for request in arrived:
            assert isinstance(request.key, Key)
            groups.setdefault((request.key, type(request.texts[0])), []).append(request)
        for (key, _), group in groups.items():
            self._tokenize(key, group)

    def _tokenize(self, key: Key, group: list[Request]) -> None:
        start = time.perf_counter()
        try:
            texts = [text for request in group for text in request.texts]
            rows = self._models[key.model].prepare(key, texts)
        except Exception as error:
            if len(group) > 1:
                for request in group:
                    self._tokenize(key, [request])
            elif not group[0].done.done():
                group[0].done.set_exception(error)
            return
        self._signals.tokenize_seconds.observe(time.perf_counter() - start)
        self.queue(group, rows)

    def _queue(self, request: Request) -> None:
        """Queue a tokenized request, or raise the exception by which :class:`Admission` refuses."""
        key, lengths, signals = request.key, request.num_tokens, self._signals
        assert isinstance(key, Key)
        served = self._models[key.model]
        request.costs = served.costs(lengths)
        request.total_tokens = sum(lengths)
        request.queued_at = time.monotonic()
        left = max(request.arrived_at + request.seconds - request.queued_at, 0.0)
        cost, num_tokens = sum(request.costs), request.total_tokens
        self._admission.check_size(served.name, request.costs, lengths)
        self._admission.check_wait(request, served.name, left, cost, num_tokens)
        num_bytes = served.answer_bytes(key.task, lengths)
        self._admission.begin_answer(num_bytes)
        request.num_bytes, request.num_open = num_bytes, len(lengths)
        request.num_characters = sum(map(count_characters, request.texts))
        signals.texts[served.name] += len(lengths)
        signals.tokens += request.total_tokens
        signals.truncated += len(request.truncated)
        self._dispatcher.add(request)
