"""A thread that computes batches, and isolates the texts that fail.

How it works: a batch that raises an error with the rows it is about (``rows``, ``row``) is computed
again without the requests of these rows. After any other exception the batch is halved, down to
single requests. A request therefore fails by its own texts alone, and a lane outlives every
exception.
"""

from __future__ import annotations

import queue
import threading
import time
from itertools import pairwise
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from encoder_engine.serving.rows import join_rows

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from encoder_engine.embedding.steps.window import WindowRows
    from encoder_engine.serving.models import ServedModel, Task
    from encoder_engine.serving.scheduler import Batch

__all__ = ["Lane", "Outcome", "Work", "compute_parts"]


class Work(NamedTuple):
    """Rows of one request, as a lane computes them."""

    rows: WindowRows
    start: int
    stop: int


class Outcome(NamedTuple):
    """The result of a batch: of each part its results, or the exception.

    failed: a whole batch raised, for another reason than one of its texts.
    """

    results: list[Any]
    seconds: float
    failed: bool


def compute_parts(
    model: ServedModel, task: Task, options: Any, parts: Sequence[Work]
) -> tuple[list[Any], bool]:
    """Return the results of each part, or the exception that its texts raise, and ``failed``."""
    try:
        joined = join_rows(parts)
        found = model.compute(task, joined, options)
    except Exception as error:
        if len(parts) == 1:
            return [error], not _rows_of(error)
        guilty = _parts_with(_rows_of(error), parts)
        if guilty:
            return _without(guilty, model, task, options, parts)
        middle = len(parts) // 2
        first, first_failed = compute_parts(model, task, options, parts[:middle])
        second, second_failed = compute_parts(model, task, options, parts[middle:])
        return first + second, first_failed or second_failed
    ends = np.cumsum([0, *(part.stop - part.start for part in parts)]).tolist()
    return [found[a:b] for a, b in pairwise(ends)], False


def _without(
    guilty: set[int], model: ServedModel, task: Task, options: Any, parts: Sequence[Work]
) -> tuple[list[Any], bool]:
    """Compute each part that has a bad text alone, and the others together."""
    results: list[Any] = [None] * len(parts)
    failed = False
    others = [number for number in range(len(parts)) if number not in guilty]
    for numbers in ([number] for number in sorted(guilty)):
        results[numbers[0]] = compute_parts(model, task, options, [parts[numbers[0]]])[0][0]
    if others:
        found, failed = compute_parts(model, task, options, [parts[n] for n in others])
        for number, result in zip(others, found, strict=True):
            results[number] = result
    return results, failed


def _rows_of(error: Exception) -> list[int]:
    """Return the rows of a batch that an error names; empty where it names none."""
    rows = getattr(error, "rows", None)
    if rows:
        return [int(row) for row in rows]
    row = getattr(error, "row", None)
    return [] if row is None else [int(row)]


def _parts_with(rows: list[int], parts: Sequence[Work]) -> set[int]:
    """Return the numbers of the parts with these rows of the batch."""
    ends = np.cumsum([part.stop - part.start for part in parts])
    found = np.searchsorted(ends, rows, side="right")
    return {int(number) for number in found if number < len(parts)}


class Lane:
    """A thread that computes one batch at a time.

    done: called in this thread with the lane, the batch and its outcome.
    """

    def __init__(self, number: int, done: Callable[[Lane, Batch, Outcome], None]) -> None:
        self.busy_since: float | None = None
        self._done = done
        self._inbox: queue.SimpleQueue[tuple[Batch, ServedModel, Task, Any, list[Work]] | None] = (
            queue.SimpleQueue()
        )
        self._thread = threading.Thread(target=self._run, name=f"lane-{number}", daemon=True)
        self._thread.start()

    def submit(
        self, batch: Batch, model: ServedModel, task: Task, options: Any, parts: list[Work]
    ) -> None:
        """Compute a batch; the lane must be idle."""
        self.busy_since = time.monotonic()
        self._inbox.put((batch, model, task, options, parts))

    def close(self) -> None:
        """End the thread after its batch."""
        self._inbox.put(None)

    def _run(self) -> None:
        while (work := self._inbox.get()) is not None:
            batch, model, task, options, parts = work
            start = time.perf_counter()
            results, failed = compute_parts(model, task, options, parts)
            self._done(self, batch, Outcome(results, time.perf_counter() - start, failed))
