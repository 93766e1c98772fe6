"""Hands batches of waiting texts to idle lanes, and the batches' results to the requests.

How it works: a lane is a thread that computes batches. An idle lane starts without waiting; what
queues while it computes is its next batch. A batch is as large as ``batch_ms`` allows at the speed
that was measured.

A lane lingers after a batch with several requests if less than half as many texts wait as the batch
had: it waits, at most 5 % of that batch's time and of ``batch_ms``, until as many wait again. 16
clients that each wait for their answer would otherwise alternate between batches of 1 and 15. With
the linger they form two groups of about 8: one is computed while the other is answered and sends
again.

A lane takes its next batch and lingers in its own thread: it need not wait until the event loop has
written the answers of the last batch. A lock guards the queue and the idle lanes.
"""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from typing import TYPE_CHECKING, Any

from encoder_engine.serving.lane import Job, Lane, Outcome, Work
from encoder_engine.serving.request import Key, Request
from encoder_engine.serving.scheduler import FLOWS_A_BATCH, Scheduler

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Iterable, Mapping

    from encoder_engine.serving.models import ServedModel
    from encoder_engine.serving.options import ServingOptions
    from encoder_engine.serving.signals import Signals

__all__ = ["FIRST_COST", "Dispatcher", "Rate"]

LOGGER = logging.getLogger("encoder_engine.serving")
LINGER_SHARE, LINGER_BELOW = 0.05, 0.5
# A service has stalled after MOST_FAILURES failed batches in a row, or when a batch takes more than
# STALL_FACTOR times the expected time, and more than STALL_SECONDS.
MOST_FAILURES, STALL_FACTOR, STALL_SECONDS = 5, 20.0, 30.0


# The share of a new batch in the estimate: the last 10 batches are two thirds of it.
SHARE = 0.1
# Beyond 400 tokens, a larger batch is no faster per token. This is the budget of a batch while the
# speed is unknown, and the least one for several clients together where a model is slow. A smaller
# batch counts less in the estimate, in proportion to its cost: it is slower per token, and would
# make a long queue look slower than it is.
FIRST_COST = 400.0
# The shortest time that is counted for a batch: the rate stays finite.
LEAST_SECONDS = 1e-5


class Rate:
    """The speed at which a lane computes a model: cost per second, a moving average.

    For the unit of a text's cost see :meth:`ServedModel.costs`.
    """

    def __init__(self) -> None:
        self._seconds = self._cost = self._seconds_each = 0.0

    @property
    def known(self) -> bool:
        """Whether a batch has been computed since the start or the last :meth:`reset`."""
        return self._seconds > 0.0

    @property
    def per_second(self) -> float:
        """The cost that a lane computes per second; 0 before the first batch."""
        return self._cost / self._seconds if self.known else 0.0

    def observe(self, cost: float, seconds: float) -> None:
        """Add a computed batch's cost and seconds to the average."""
        share = SHARE * min(1.0, cost / FIRST_COST) if self.known else 1.0
        self._cost += share * (cost - self._cost)
        self._seconds += share * (max(seconds, LEAST_SECONDS) - self._seconds)
        self._seconds_each = self._seconds / self._cost

    def reset(self) -> None:
        """Forget all measurements."""
        self._seconds = self._cost = self._seconds_each = 0.0

    def seconds(self, cost: float) -> float:
        """Return the seconds that a lane takes for texts of this cost; 0 before the first batch."""
        return cost * self._seconds_each

    def budget(self, milliseconds: float) -> float:
        """Return the cost that a lane computes in this time; FIRST_COST before the first batch."""
        return self.per_second * milliseconds / 1000.0 if self.known else FIRST_COST


class Dispatcher:
    """The lanes of a service, and the queue of texts that they compute.

    It is used in the event loop's thread and in the lanes' threads.

    scheduler: the waiting texts; without the lock only its counts are read.
    rates: the speed of each model, by the model's name.
    """

    def __init__(
        self, models: Mapping[str, ServedModel], options: ServingOptions, signals: Signals
    ) -> None:
        self._models, self._options, self._signals = models, options, signals
        self.scheduler, self._lock = Scheduler(), threading.Lock()
        self.rates = {name: Rate() for name in models}
        self._lanes: list[Lane] = []
        # Of each idle lane, the number of waiting texts at which it begins.
        self._idle: dict[Lane, int] = {}
        self._loop: asyncio.AbstractEventLoop | None = None
        self._num_failures = 0

    def start(self) -> None:
        """Start the lanes; called in the event loop's thread."""
        self._loop = asyncio.get_running_loop()
        numbers = range(self._options.lanes)
        self._lanes = [Lane(number, self._report, self._end_linger) for number in numbers]
        self._idle = dict.fromkeys(self._lanes, 1)
        self._num_failures = 0

    def close(self) -> None:
        """Have each lane end after its present batch; waiting texts are not computed."""
        with self._lock:
            lanes, self._lanes, self._idle = self._lanes, [], {}
        for lane in lanes:
            lane.close()

    def seconds(self, model: str, cost: float) -> float:
        """Return the seconds in which all lanes together compute a model's texts of this cost.

        0 while the speed is unknown.
        """
        return self.rates[model].seconds(cost) / max(len(self._lanes), 1)

    def wait_seconds(self) -> float:
        """Return the seconds that the lanes take for all waiting texts, at each model's speed."""
        with self._lock:
            return self._seconds((key, cost) for key, (cost, _) in self.scheduler.waiting.items())

    def turn_seconds(self, flow: Hashable, priority: int, size: float | None) -> float:
        """Return the seconds until a client's new request has its last texts in a batch.

        flow, priority: the request's client and priority.
        size: the seconds that the request takes; None: as many as a waiting text on average.
        """
        total = self.wait_seconds()
        with self._lock:
            load, num_texts = self.scheduler.load(flow, priority), self.scheduler.num_texts
            own = min(self._seconds(load.costs.items()), total)
        if size is None:
            size = total / max(num_texts, 1)
        # The time of a quantum: the least that a large request gets in a turn.
        quantum = self._options.batch_ms / 1e3 / FLOWS_A_BATCH / max(len(self._lanes), 1)
        return load.before(size, own, total, quantum)

    def turn_tokens(self, flow: Hashable, priority: int, size: float | None) -> float:
        """Return the number of tokens computed before the last texts of a client's new request.

        flow, priority: the request's client and priority.
        size: the tokens of the request; None: as many as a waiting text has on average.
        """
        with self._lock:
            scheduler = self.scheduler
            load, total = scheduler.load(flow, priority), scheduler.num_tokens
            size = total / max(scheduler.num_texts, 1) if size is None else size
        return load.before(size, load.num_tokens, total)

    def _seconds(self, costs: Iterable[tuple[Hashable, float]]) -> float:
        total = 0.0
        for key, cost in costs:
            assert isinstance(key, Key)
            total += self.rates[key.model].seconds(cost)
        return total / max(len(self._lanes), 1)

    def stall_reason(self) -> str | None:
        """Return why no batch finishes; None: batches finish, or there is nothing to do."""
        if not self._lanes:
            return "the service has not started"
        if self._num_failures >= MOST_FAILURES:
            return f"the last {self._num_failures} batches failed"
        now = time.monotonic()
        for lane in self._lanes:
            if not lane.alive:
                return "the thread of a lane has ended"
            since = lane.busy_since
            if since is not None and now - since > max(
                STALL_SECONDS, STALL_FACTOR * lane.expected_seconds
            ):
                return f"a batch has taken {now - since:.0f} seconds"
        return None

    def add(self, request: Request) -> None:
        """Queue the texts of a request; :meth:`dispatch` gives them to a lane."""
        with self._lock:
            self.scheduler.add(request)

    def remove(self, request: Request) -> None:
        """Drop the texts of a request that are in no batch yet."""
        if request.num_waiting:
            with self._lock:
                self.scheduler.remove(request)

    def dispatch(self) -> None:
        """Give each idle lane its next batch; lingering lanes may go on waiting for more texts."""
        with self._lock:
            ready = [
                lane for lane, least in self._idle.items() if self.scheduler.num_texts >= least
            ]
            for lane in ready:
                job = self._next_job()
                if job is None:
                    return
                del self._idle[lane]
                lane.submit(job)

    def _next_job(self) -> Job | None:
        """Take the next batch out of the queue; None: no texts wait. The lock must be held."""
        if not self.scheduler.num_texts:
            return None
        key = self.scheduler.next_key
        assert isinstance(key, Key)
        rate, model = self.rates[key.model], self._models[key.model]
        each = rate.budget(self._options.batch_ms)
        batch = self.scheduler.next_batch(max(each, FIRST_COST), model.batch_tokens, each)
        now, parts, waits = time.monotonic(), [], []
        for request, start, stop in batch.parts:
            assert isinstance(request, Request)
            if request.started_at is None:
                request.started_at = now
                waits.append(now - request.queued_at)
            assert request.rows is not None
            place = request.first_row
            parts.append(Work(request.rows, place + start, place + stop, start))
        expected = rate.seconds(batch.cost)
        return Job(batch, model, key.task, key.options, parts, waits, expected)

    def _report(self, lane: Lane, job: Job, outcome: Outcome) -> Job | float | None:
        """Have the event loop answer a finished batch; return what the lane does next.

        That is its next batch, or the seconds to linger, or None: it is idle. Called in the lane's
        thread.
        """
        following: Job | float | None = None
        with self._lock:
            try:
                following = self._follow(lane, job, outcome)
            except Exception as error:
                self._recover(lane, error)
        # Whatever failed above, the batch is answered.
        return following if self._call_soon(self._finish, job, outcome) else None

    def _follow(self, lane: Lane, job: Job, outcome: Outcome) -> Job | float | None:
        """Count a finished batch and return what the lane does next, as :meth:`_report` does.

        The lock must be held.
        """
        batch, scheduler = job.batch, self.scheduler
        following: Job | float | None = None
        ended = zip(batch.parts, outcome.results, strict=True)
        failed = [part.request for part, result in ended if isinstance(result, Exception)]
        for request in failed:
            scheduler.remove(request)
        if not failed:
            self.rates[job.model.name].observe(batch.cost, outcome.seconds)
        num_texts = batch.num_texts
        lingers = len(batch.parts) > 1 and scheduler.num_texts < LINGER_BELOW * num_texts
        # A closed lane computes nothing more.
        if lane in self._lanes:
            most = LINGER_SHARE * min(outcome.seconds, self._options.batch_ms / 1e3)
            following = most if lingers else self._next_job()
        if not isinstance(following, Job):
            lane.busy_since = None
            if lane in self._lanes:
                self._idle[lane] = num_texts if lingers else 1
        return following

    def _recover(self, lane: Lane, error: Exception) -> None:
        """Make the lane idle after a failure to take its next batch; the event loop will try again.

        The lock must be held.
        """
        LOGGER.error("a lane could not take its next batch (%s)", type(error).__name__)
        self._num_failures += 1
        lane.busy_since = None
        if lane in self._lanes:
            self._idle[lane] = 1
        self._call_soon(self.dispatch)

    def _call_soon(self, call: Callable[..., None], *given: Any) -> bool:
        """Schedule a call in the event loop's thread; return whether the loop is still open."""
        assert self._loop is not None
        try:
            self._loop.call_soon_threadsafe(call, *given)
        except RuntimeError:
            # The loop was closed: nobody waits any more.
            return False
        return True

    def _end_linger(self, lane: Lane) -> Job | None:
        """Return the next batch of a lane that has lingered, or None: it stays idle.

        Called in the lane's thread.
        """
        with self._lock:
            if lane not in self._idle:
                # The lane is no longer idle: a batch, or its end, is on its way.
                return None
            try:
                job = self._next_job()
            except Exception as error:
                self._recover(lane, error)
                return None
            if job is None:
                self._idle[lane] = 1
            else:
                del self._idle[lane]
            return job

    def _finish(self, job: Job, outcome: Outcome) -> None:
        """Pass the results of a batch to its requests."""
        batch, signals = job.batch, self._signals
        signals.batch_tokens.observe(batch.num_tokens)
        signals.batch_texts.observe(batch.num_texts)
        for seconds in job.queue_seconds:
            signals.queue_seconds.observe(seconds)
        signals.compute_seconds.observe(outcome.seconds)
        signals.lane_busy_seconds += outcome.seconds
        self._num_failures = self._num_failures + 1 if outcome.failed else 0
        for (request, start, stop), result in zip(batch.parts, outcome.results, strict=True):
            assert isinstance(request, Request)
            request.compute_seconds += outcome.seconds
            if isinstance(result, Exception):
                signals.batch_failures[type(result).__name__] += 1
                if not request.done.done():
                    request.done.set_exception(result)
                continue
            if request.done.done():
                continue
            request.results.append((start, result))
            request.num_open -= stop - start
            if request.num_open == 0:
                request.done.set_result(None)
        # An exception's traceback refers to this list.
        outcome.results.clear()
