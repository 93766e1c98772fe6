"""Embeds, scores and classifies the texts of many callers together, in batches they share.

How it works: a coroutine tokenizes its texts, and either enters the queue with all of them or is
refused at once. An idle lane starts without waiting; what queues while it computes is its next
batch. A batch is as large as ``batch_ms`` allows at the speed that was measured. Results are those
of a direct call, byte for byte on a CPU in float32, whatever shares the batch. A request that is
cancelled or late leaves the queue.

After a batch with several requests the lane waits, at most 5 % of that batch's time, until as many
texts wait again: 16 clients that each wait for their answer would otherwise alternate between
batches of 1 and 15, at 3.4 instead of 2.9 ms of CPU time a text.
"""

from __future__ import annotations

import asyncio
import time
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from encoder_engine.errors import (
    DeadlineError,
    DrainingError,
    InputError,
    OverloadedError,
    UnknownNameError,
)
from encoder_engine.json_values import nearest
from encoder_engine.serving.lane import Lane, Outcome, Work
from encoder_engine.serving.models import CallOptions, ServedModel
from encoder_engine.serving.options import ServingOptions
from encoder_engine.serving.rate import Rate
from encoder_engine.serving.request import Key, Request, size_of
from encoder_engine.serving.scheduler import Scheduler
from encoder_engine.serving.signals import Signals

if TYPE_CHECKING:
    from collections.abc import Hashable, Mapping, Sequence
    from types import TracebackType

    from encoder_engine.serving.models import Prepared, Task, Text
    from encoder_engine.serving.request import Answer
    from encoder_engine.serving.scheduler import Batch

__all__ = ["Service"]

# Texts of more bytes are tokenized in a thread of their own, so that others do not wait for them.
INLINE_BYTES = 65_536
# Seconds of work that may wait, where max_queue_tokens is not given.
QUEUE_SECONDS = 10.0
LINGER_SHARE = 0.05
# A service is ill after so many failed batches in a row, or after a batch this much longer than
# expected, and at least so many seconds.
MOST_FAILURES, STALL_FACTOR, STALL_SECONDS = 5, 20.0, 30.0


class Service:
    """Serves models to the coroutines of one event loop.

    ``models``: an Embedder, SparseEmbedder, MultiVectorEmbedder or Ranker by name; the first is
    the default. Use it as ``async with Service(...) as service``, or call :meth:`start` and
    :meth:`stop`. Raises :class:`UnsupportedFeatureError` for a model that cannot be served.
    """

    def __init__(self, models: Mapping[str, Any], options: ServingOptions | None = None) -> None:
        if not models:
            raise InputError("no model given; a service needs at least one")
        self.options = ServingOptions() if options is None else options
        self.models = {name: ServedModel(name, model) for name, model in models.items()}
        self.signals = Signals()
        self._scheduler = Scheduler()
        self._rates = {name: Rate() for name in self.models}
        self._lanes: list[Lane] = []
        self._idle: list[Lane] = []
        self._loop: asyncio.AbstractEventLoop | None = None
        self._linger: asyncio.TimerHandle | None = None
        self._linger_texts = 0
        self._bytes = self._answer_bytes = self._num_calls = 0
        self._requests: set[Request] = set()
        self._num_failures = 0
        # Not ready any more; refusing new requests; nothing was lost.
        self._ending = self._draining = self.drained = False
        self._empty = asyncio.Event()
        self._empty.set()

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self,
        _kind: type[BaseException] | None,
        _error: BaseException | None,
        _trace: TracebackType | None,
    ) -> None:
        await self.stop()

    async def start(self) -> None:
        """Start the lanes, and compute a first text by every model."""
        self._loop = asyncio.get_running_loop()
        self._lanes = [Lane(number, self._report) for number in range(self.options.lanes)]
        self._idle = list(self._lanes)
        for model in self.models.values():
            for count in (1, min(16, self.options.max_texts)):
                await self._call(model.tasks[0], ["warm up"] * count, model.name, CallOptions())

    def announce_end(self) -> None:
        """Say that the service is not ready; what arrives meanwhile is still computed."""
        self._ending = True

    async def stop(self) -> None:
        """Refuse new requests, and compute what waits.

        What is left after ``drain_timeout`` seconds gets a :class:`DrainingError`.
        """
        self._ending = self._draining = True
        try:
            await asyncio.wait_for(self._empty.wait(), self.options.drain_timeout)
            self.drained = True
        except TimeoutError:
            self._abandon()
        for lane in self._lanes:
            lane.close()
        self._lanes, self._idle = [], []

    def _abandon(self) -> None:
        """Fail the requests that are left."""
        for request in list(self._requests):
            self._scheduler.remove(request)
            if not request.done.done():
                request.done.set_exception(
                    DrainingError("the service ended before the request was computed; repeat it")
                )

    @property
    def ready(self) -> bool:
        """Whether new requests should come here."""
        return not self._ending and self.illness() is None

    @property
    def draining(self) -> bool:
        """Whether the service ends."""
        return self._ending

    @property
    def num_waiting(self) -> int:
        """The number of texts that wait."""
        return self._scheduler.num_texts

    @property
    def waiting_tokens(self) -> int:
        """The number of tokens that wait."""
        return self._scheduler.num_tokens

    @property
    def waiting_bytes(self) -> int:
        """The bytes of the texts that wait or are computed."""
        return self._bytes

    def illness(self) -> str | None:
        """Return why the service makes no progress; None: it does, or has nothing to do."""
        if not self._lanes:
            return "the service has not started"
        if self._num_failures >= MOST_FAILURES:
            return f"the last {self._num_failures} batches failed"
        expected = STALL_FACTOR * self.options.batch_ms / 1000.0
        now = time.monotonic()
        for lane in self._lanes:
            since = lane.busy_since
            if since is not None and now - since > max(STALL_SECONDS, expected):
                return f"a batch has taken {now - since:.0f} seconds"
        return None

    def find(self, name: str | None) -> ServedModel:
        """Return a model; None: the first. Raises :class:`UnknownNameError`."""
        if name is None:
            return next(iter(self.models.values()))
        if name not in self.models:
            raise UnknownNameError(
                f"no model {name!r}{nearest(name, self.models)}; there are {', '.join(self.models)}"
            )
        return self.models[name]

    async def embed(
        self,
        texts: Sequence[str],
        model: str | None = None,
        *,
        options: CallOptions | None = None,
        priority: int = 0,
        timeout: float | None = None,
        client: Hashable = None,
    ) -> Answer:
        """Embed texts: ``results`` are float32 [N, D], as :meth:`Embedder.encode` returns them.

        options: prompt, normalisation, dimensions.
        priority: 0 to 9, the most urgent first; a larger one gets less of each batch.
        timeout: seconds; None: the service's.
        client: whose requests share one queue; callers take turns.

        Raises :class:`UnknownNameError` for another model, :class:`UnsupportedFeatureError` for a
        model that embeds nothing, :class:`OverloadedError` where too much waits,
        :class:`DeadlineError` after the timeout, :class:`DrainingError` where the service ends, and
        what the model's own method raises.
        """
        return await self._call("embed", texts, model, options, priority, timeout, client)

    async def sparse(self, texts: Sequence[str], model: str | None = None, **given: Any) -> Answer:
        """Embed texts to sparse vectors: pairs of ``(indices, values)``; see :meth:`embed`."""
        return await self._call("sparse", texts, model, **given)

    async def tokens(self, texts: Sequence[str], model: str | None = None, **given: Any) -> Answer:
        """Embed every token of texts: float32 [n, D] each; see :meth:`embed`."""
        return await self._call("tokens", texts, model, **given)

    async def rank(
        self, query: str, documents: Sequence[str], model: str | None = None, **given: Any
    ) -> Answer:
        """Score documents for a query: float32 [N], in the order given; see :meth:`embed`."""
        answer = await self._call("rank", [(query, text) for text in documents], model, **given)
        return answer._replace(results=answer.results[:, 0])

    async def classify(
        self, texts: Sequence[Text], model: str | None = None, **given: Any
    ) -> Answer:
        """Classify texts or pairs: activated logits, float32 [N, C]; see :meth:`embed`."""
        return await self._call("classify", texts, model, **given)

    async def _call(
        self,
        task: Task,
        texts: Sequence[Text],
        model: str | None = None,
        options: CallOptions | None = None,
        priority: int = 0,
        timeout: float | None = None,
        client: Hashable = None,
    ) -> Answer:
        served = self.find(model)
        served.check_task(task)
        self._check(texts, priority)
        start = time.monotonic()
        options = CallOptions() if options is None else options
        if self.options.truncation == "refuse":
            options = replace(options, refuses_long=True)
        seconds = self.options.timeout if timeout is None else timeout
        num_bytes = sum(size_of(text) for text in texts)
        self._admit_bytes(num_bytes)
        self._num_calls += 1
        self._empty.clear()
        self._bytes += num_bytes
        try:
            async with asyncio.timeout(seconds):
                prepared = await self._prepare(served, task, texts, options, num_bytes)
                tokenized = time.monotonic()
                request = self._enqueue(served, task, prepared, priority, client, seconds)
                try:
                    await request.done
                finally:
                    self._leave(request)
                return request.answer(tokenized - start)
        except TimeoutError:
            self.signals.rejected["deadline"] += 1
            raise DeadlineError(
                f"the request was not computed within {seconds:g} seconds; try again later, send "
                "fewer texts, or allow more time"
            ) from None
        except asyncio.CancelledError:
            self.signals.cancelled += 1
            raise
        finally:
            self._bytes -= num_bytes
            self._num_calls -= 1
            if self._num_calls == 0:
                self._empty.set()

    def _leave(self, request: Request) -> None:
        """Forget a request; its texts that are in no batch yet are never computed."""
        self._scheduler.remove(request)
        self._requests.discard(request)
        self._answer_bytes -= request.num_bytes

    def _check(self, texts: Sequence[Text], priority: int) -> None:
        if isinstance(texts, str):
            raise InputError("texts must be a sequence of texts, got one str; wrap it in a list")
        if self._draining:
            raise DrainingError("the service ends; send the request to another one")
        if not 0 <= priority <= 9:
            raise InputError(f"priority must be 0 to 9, got {priority!r}")
        if not len(texts):
            raise InputError("the request has no text; send at least one")
        if len(texts) > self.options.max_texts:
            raise InputError(
                f"the request has {len(texts)} texts, the most are {self.options.max_texts}; "
                "split it"
            )

    def _admit_bytes(self, num_bytes: int) -> None:
        most = self.options.max_queue_bytes
        if self._bytes + num_bytes > most:
            self._refuse(f"{self._bytes} bytes of texts wait, the most are {most}")

    def _refuse(self, reason: str) -> None:
        self.signals.rejected["overloaded"] += 1
        raise OverloadedError(f"{reason}; try again later", retry_after=self._wait_seconds())

    def _wait_seconds(self) -> float:
        """Return the time that what waits takes, at least 0.1 s."""
        rates = [rate.per_second for rate in self._rates.values() if rate.known]
        if not rates:
            return 1.0
        return max(0.1, self._scheduler.cost / (min(rates) * max(len(self._lanes), 1)))

    async def _prepare(
        self,
        served: ServedModel,
        task: Task,
        texts: Sequence[Text],
        options: CallOptions,
        num_bytes: int,
    ) -> Prepared:
        start = time.perf_counter()
        if num_bytes <= INLINE_BYTES:
            prepared = served.prepare(task, texts, options)
        else:
            prepared = await asyncio.to_thread(served.prepare, task, texts, options)
        self.signals.tokenize_seconds.observe(time.perf_counter() - start)
        return prepared

    def _enqueue(
        self,
        served: ServedModel,
        task: Task,
        prepared: Prepared,
        priority: int,
        client: Hashable,
        seconds: float,
    ) -> Request:
        assert self._loop is not None, "the service has not started"
        rows = prepared.rows
        costs = served.costs(rows)
        num_bytes = served.answer_bytes(task, rows)
        self._admit(served, sum(costs), int(np.sum(rows.lengths)), seconds)
        self._admit_answer(num_bytes)
        request = Request(
            flow=client,
            key=Key(served.name, task, prepared.options),
            costs=costs,
            num_tokens=rows.lengths.tolist(),
            priority=priority,
            prepared=prepared,
            done=self._loop.create_future(),
            num_open=len(rows),
            num_bytes=num_bytes,
            queued_at=time.monotonic(),
        )
        self._answer_bytes += request.num_bytes
        self._requests.add(request)
        self._scheduler.add(request)
        self.signals.texts[served.name] += len(rows)
        self.signals.tokens += int(np.sum(rows.lengths))
        self.signals.truncated += int(np.sum(rows.truncated))
        self._dispatch(arrived=True)
        return request

    def _admit(self, served: ServedModel, cost: float, num_tokens: int, seconds: float) -> None:
        """Refuse a request whose texts would wait too long; one that meets no other is taken."""
        if not self._scheduler.num_texts:
            return
        rate = self._rates[served.name]
        most = self.options.max_queue_tokens
        waiting = self._scheduler.num_tokens
        if most is not None and waiting + num_tokens > most:
            self._refuse(f"{waiting} tokens wait, the most are {most}")
        wait = rate.seconds(self._scheduler.cost) / len(self._lanes)
        if most is None and rate.known and wait > QUEUE_SECONDS:
            self._refuse(f"texts for {wait:.1f} seconds wait, the most are {QUEUE_SECONDS:g}")
        if rate.known and wait + rate.seconds(cost) / len(self._lanes) > seconds:
            self._refuse(f"texts for {wait:.1f} seconds wait, and the request has {seconds:g}")

    def _admit_answer(self, num_bytes: int) -> None:
        most = self.options.max_answer_bytes
        if num_bytes > most:
            raise InputError(
                f"the answer would have {num_bytes} bytes, the most are {most}; send fewer texts"
            )
        if self._answer_bytes + num_bytes > most:
            self._refuse(f"answers of {self._answer_bytes} bytes are due, the most are {most}")

    def _dispatch(self, *, arrived: bool = False) -> None:
        """Give idle lanes their next batches."""
        if self._linger is not None:
            if arrived and self._scheduler.num_texts < self._linger_texts:
                return
            self._linger.cancel()
            self._linger = None
        while self._idle and self._scheduler.num_texts:
            lane = self._idle.pop()
            key = self._scheduler.next_key
            assert isinstance(key, Key)
            budget = self._rates[key.model].budget(self.options.batch_ms)
            batch = self._scheduler.next_batch(budget, self.models[key.model].batch_tokens)
            self._submit(lane, batch)

    def _submit(self, lane: Lane, batch: Batch) -> None:
        key = batch.key
        assert isinstance(key, Key)
        now, parts = time.monotonic(), []
        for request, start, stop in batch.parts:
            assert isinstance(request, Request)
            if request.started_at is None:
                request.started_at = now
                self.signals.queue_seconds.observe(now - request.queued_at)
            parts.append(Work(request.prepared.rows, start, stop))
        self.signals.batch_tokens.observe(batch.num_tokens)
        self.signals.batch_texts.observe(batch.num_texts)
        lane.submit(batch, self.models[key.model], key.task, key.options, parts)

    def _report(self, lane: Lane, batch: Batch, outcome: Outcome) -> None:
        """Hand a finished batch to the event loop; called in the lane's thread."""
        assert self._loop is not None
        try:
            self._loop.call_soon_threadsafe(self._finish, lane, batch, outcome)
        except RuntimeError:
            # The loop was closed: nobody waits any more.
            return

    def _finish(self, lane: Lane, batch: Batch, outcome: Outcome) -> None:
        lane.busy_since = None
        self._idle.append(lane)
        key = batch.key
        assert isinstance(key, Key)
        self._rates[key.model].observe(batch.cost, outcome.seconds)
        self.signals.compute_seconds.observe(outcome.seconds)
        self.signals.lane_busy_seconds += outcome.seconds
        self._num_failures = self._num_failures + 1 if outcome.failed else 0
        for (request, start, stop), result in zip(batch.parts, outcome.results, strict=True):
            assert isinstance(request, Request)
            request.compute_seconds += outcome.seconds
            if isinstance(result, Exception):
                self.signals.batch_failures[type(result).__name__] += 1
                self._scheduler.remove(request)
                if not request.done.done():
                    request.done.set_exception(result)
                continue
            request.results.append((start, result))
            request.num_open -= stop - start
            if request.num_open == 0 and not request.done.done():
                request.done.set_result(None)
        self._linger_for(batch, outcome.seconds)
        self._dispatch(arrived=True)

    def _linger_for(self, batch: Batch, seconds: float) -> None:
        """Wait until as many texts wait as a shared batch had, at most 5 % of its time."""
        if len(batch.parts) < 2 or self._scheduler.num_texts >= batch.num_texts:
            return
        assert self._loop is not None
        if self._linger is not None:
            self._linger.cancel()
        self._linger_texts = batch.num_texts
        self._linger = self._loop.call_later(LINGER_SHARE * seconds, self._end_linger)

    def _end_linger(self) -> None:
        self._linger = None
        self._dispatch()
