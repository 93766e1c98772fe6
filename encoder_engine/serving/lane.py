"""A thread that computes batches, and isolates the requests whose texts fail.

How it works: if an exception names the rows that caused it (``rows``, ``row``), the batch is
computed again without the requests of these rows. After any other exception the batch is halved,
down to single requests. A request therefore fails only by its own texts, and a lane survives every
exception.
"""

from __future__ import annotations

import queue
import threading
import time
from itertools import accumulate, pairwise
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from encoder_engine.errors import (
    DeviceMemoryError,
    InputError,
    NonFiniteVectorError,
    ServiceError,
)
from encoder_engine.serving.rows import join_rows

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from encoder_engine.packing.token_rows import WindowRows
    from encoder_engine.serving.models import ServedModel
    from encoder_engine.serving.scheduler import Batch
    from encoder_engine.serving.tasks import Task

__all__ = ["Job", "Lane", "Outcome", "Work", "compute_parts", "rows_of"]


class Work(NamedTuple):
    """The tokenized texts of one request in a batch: ``rows[start:stop]``.

    ``first_text``: the index in the request of the text ``rows[start]``.
    """

    rows: WindowRows
    start: int
    stop: int
    first_text: int


class Job(NamedTuple):
    """What a lane computes at a time: a batch, with its model, task and options.

    parts: the tokenized texts of each request in the batch.
    queue_seconds: how long each request waited whose first texts are in this batch.
    expected_seconds: the time that the batch should take; 0: unknown.
    """

    batch: Batch
    model: ServedModel
    task: Task
    options: Any
    parts: list[Work]
    queue_seconds: list[float]
    expected_seconds: float


class Outcome(NamedTuple):
    """What came of a batch: for the part of each request, its results or its exception.

    failed: every part raised an exception, and no exception names a text as the cause.
    """

    results: list[Any]
    seconds: float
    failed: bool


def compute_parts(
    model: ServedModel, task: Task, options: Any, parts: Sequence[Work]
) -> tuple[list[Any], bool]:
    """Compute a batch; return each part's results or exception, and :attr:`Outcome.failed`."""
    results: list[Any] = [None] * len(parts)
    failures = 0
    groups = [list(range(len(parts)))]
    while groups:
        numbers = groups.pop()
        own = [parts[number] for number in numbers]
        try:
            found = _compute(model, task, options, own)
        except Exception as error:
            rows = rows_of(error)
            if len(numbers) == 1:
                results[numbers[0]] = _in_request(error, rows, own[0].first_text)
                failures += not rows
                continue
            guilty = _parts_with(rows, own)
            if guilty:
                groups += [[numbers[place]] for place in sorted(guilty)]
                rest = [number for place, number in enumerate(numbers) if place not in guilty]
                groups += [rest] if rest else []
            else:
                middle = len(numbers) // 2
                groups += [numbers[:middle], numbers[middle:]]
            continue
        for number, result in zip(numbers, found, strict=True):
            results[number] = result
    return results, failures == len(parts)


def _compute(model: ServedModel, task: Task, options: Any, parts: Sequence[Work]) -> list[Any]:
    found = model.compute(task, join_rows([part[:3] for part in parts]), options)
    ends = list(accumulate((part.stop - part.start for part in parts), initial=0))
    if len(found) != ends[-1]:
        raise ServiceError(f"the model returned {len(found)} results of {ends[-1]} texts")
    return [found[a:b] for a, b in pairwise(ends)]


def _in_request(error: Exception, rows: list[int], start: int) -> Exception:
    """Convert an error about rows of a part to one about the texts, by index, of its request.

    rows: the indices in the part.
    start: the index of the part's first text in the request.
    """
    places = [start + row for row in rows]
    if isinstance(error, NonFiniteVectorError) and rows:
        return NonFiniteVectorError(
            f"the results of {len(places)} texts are NaN or infinite, the first is text "
            f"{places[0]}: the model's numbers overflow or are damaged",
            rows=places,
        )
    if isinstance(error, DeviceMemoryError):
        return DeviceMemoryError(
            f"text {places[0]} alone needs more memory than the device has", row=places[0]
        )
    if isinstance(error, InputError) and rows:
        error.row = places[0]
    return error


def rows_of(error: Exception) -> list[int]:
    """Return the rows of a batch that an exception names; empty if it names none."""
    rows = getattr(error, "rows", None)
    if rows:
        return [int(row) for row in rows]
    row = getattr(error, "row", None)
    return [] if row is None else [int(row)]


def _parts_with(rows: list[int], parts: Sequence[Work]) -> set[int]:
    """Return the indices of the parts that contain these rows, given by index in the batch."""
    ends = np.cumsum([part.stop - part.start for part in parts])
    found = np.searchsorted(ends, rows, side="right")
    return {int(number) for number in found if number < len(parts)}


class Lane:
    """A thread that computes one batch at a time.

    done: called in this thread with the lane, the job and its outcome; returns the next job, or the
        seconds to wait for one, or None: the lane is idle until :meth:`submit`.
    waited: called in this thread with the lane after the seconds that ``done`` returned; returns
        the next job, or None.
    busy_since: when its batch began; None: it is idle.
    expected_seconds: the time that its batch should take; 0: unknown.
    """

    def __init__(
        self,
        number: int,
        done: Callable[[Lane, Job, Outcome], Job | float | None],
        waited: Callable[[Lane], Job | None],
    ) -> None:
        self.busy_since: float | None = None
        self.expected_seconds = 0.0
        self._done, self._waited = done, waited
        self._inbox: queue.SimpleQueue[Job | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._run, name=f"lane-{number}", daemon=True)
        self._thread.start()

    @property
    def alive(self) -> bool:
        """Return whether the thread runs."""
        return self._thread.is_alive()

    def submit(self, job: Job) -> None:
        """Have the lane compute a batch; the lane must be idle."""
        self._begin(job)
        self._inbox.put(job)

    def close(self) -> None:
        """End the lane's thread after its present batch."""
        self._inbox.put(None)

    def _begin(self, job: Job) -> None:
        self.expected_seconds, self.busy_since = job.expected_seconds, time.monotonic()

    def _run(self) -> None:
        job = self._inbox.get()
        while job is not None:
            following = self._compute(job)
            # Nothing of a batch is kept while the lane is idle.
            del job
            job = following if isinstance(following, Job) else self._next(following)

    def _next(self, seconds: float | None) -> Job | None:
        """Wait for a job; after ``seconds`` call ``waited`` for one. None: the lane has to end."""
        if seconds is not None:
            try:
                return self._inbox.get(timeout=seconds)
            except queue.Empty:
                job = self._waited(self)
                if job is not None:
                    self._begin(job)
                    return job
        return self._inbox.get()

    def _compute(self, job: Job) -> Job | float | None:
        """Compute a batch, pass its results to ``done``, and return the value of ``done``."""
        start = time.perf_counter()
        try:
            results, failed = compute_parts(job.model, job.task, job.options, job.parts)
        except BaseException as error:
            # SystemExit from a model, say: whoever waits is answered, and the lane goes on.
            reason = ServiceError(f"the lane failed ({type(error).__name__})")
            results, failed = [reason] * len(job.parts), True
        following = self._done(self, job, Outcome(results, time.perf_counter() - start, failed))
        if isinstance(following, Job):
            self._begin(following)
        return following
