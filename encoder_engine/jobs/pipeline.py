"""Overlaps a run's stages: one thread prefetches inputs, another writes results."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any, Self, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterator
    from concurrent.futures import Future

Item = TypeVar("Item")


def ahead(items: Iterator[Item], num_items: int = 1) -> Generator[Item]:
    """Yield items that a thread prefetches, at most ``num_items`` ahead of the consumer.

    An exception of ``items`` is raised after the items before it. Closing the generator waits for
    the item being drawn, so ``items`` must not block for ever.
    """
    entries: SimpleQueue[tuple[Item] | BaseException] = SimpleQueue()
    room, stopped = threading.Semaphore(num_items), threading.Event()

    def draw() -> None:
        while room.acquire() and not stopped.is_set():
            try:
                entries.put((next(items),))
            except BaseException as error:  # StopIteration too: the consumer raises or ends
                entries.put(error)
                return

    thread = threading.Thread(target=draw, daemon=True)
    thread.start()
    try:
        while True:
            entry = entries.get()
            if isinstance(entry, StopIteration):
                return
            if isinstance(entry, BaseException):
                raise entry
            room.release()
            yield entry[0]
    finally:
        stopped.set()
        room.release()
        thread.join()


class BackgroundWriter:
    """Makes calls in another thread, one at a time and in order; a context manager.

    A call first waits for the one before, and raises its exception. Leaving the context waits for
    the last call, and raises its exception unless another one is propagating.
    """

    def __init__(self) -> None:
        self._pool = ThreadPoolExecutor(max_workers=1)
        self._last: Future[Any] | None = None

    def __call__(self, function: Callable[..., Any], *arguments: Any) -> None:
        """Start a call in the thread, after the one before has ended."""
        self.wait()
        self._last = self._pool.submit(function, *arguments)

    def wait(self) -> None:
        """Wait for the last call, and raise its exception."""
        last, self._last = self._last, None
        if last is not None:
            last.result()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_details: object) -> None:
        self._pool.shutdown(wait=True)
        if kind is None:
            self.wait()
