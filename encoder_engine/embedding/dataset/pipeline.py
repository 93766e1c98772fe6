"""Stages of a run that overlap: one thread draws ahead of the computing, one writes behind it."""

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
    """Yield items that a thread draws, so many ahead of whoever takes them; errors in their place.

    Closing waits for the item being drawn: give it what cannot wait for ever.
    """
    entries: SimpleQueue[tuple[Item] | BaseException] = SimpleQueue()
    room, stopped = threading.Semaphore(num_items), threading.Event()

    def draw() -> None:
        while room.acquire() and not stopped.is_set():
            try:
                entries.put((next(items),))
            except BaseException as error:  # StopIteration among them: whoever takes shall know
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


class Behind:
    """Makes calls in a thread, one at a time and in order; a context manager.

    A call waits for the one before, and raises what that one raised. Leaving it waits for the last,
    and raises what that one raised unless another error is on its way.
    """

    def __init__(self) -> None:
        self._pool = ThreadPoolExecutor(max_workers=1)
        self._last: Future[Any] | None = None

    def __call__(self, function: Callable[..., Any], *arguments: Any) -> None:
        """Begin a call."""
        self.wait()
        self._last = self._pool.submit(function, *arguments)

    def wait(self) -> None:
        """Wait for the last call."""
        last, self._last = self._last, None
        if last is not None:
            last.result()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_details: object) -> None:
        self._pool.shutdown(wait=True)
        if kind is None:
            self.wait()
