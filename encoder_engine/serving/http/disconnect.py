"""Cancels the task of a request whose client disconnects.

How it works: the protocol class on httptools (``protocol.py``) puts a :class:`Listener` into the
scope of each request, and calls it when the connection ends. Without one, as with ``--http h11`` or
under another server, a second task of every request waits for ``http.disconnect``.
"""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

__all__ = ["EXTENSION", "Listener", "Watch"]

# The name of the extension in the scope of a request.
EXTENSION = "encoder_engine.disconnect"


class Listener:
    """Passes on that a client disconnected; ``call`` is set while a request is computed.

    arrived: whether the whole body is there to be received.
    began: when the head of the request had been read, by :func:`time.monotonic`.
    """

    __slots__ = ("arrived", "began", "call")

    # It does not refer to the request: the scope of the request refers to it, and the cycle would
    # be left to the garbage collector.
    def __init__(self, *, arrived: bool) -> None:
        self.arrived = arrived
        self.began = time.monotonic()
        self.call: Callable[[], None] | None = None

    def tell(self) -> None:
        """Say that the client disconnected."""
        if self.call is not None:
            self.call()


class Watch:
    """Cancels the task that calls :meth:`start` when its client disconnects, until :meth:`stop`.

    gone: whether it did.
    began: when its request began; under another server, when it was passed on.
    """

    __slots__ = ("_listener", "_owner", "_receive", "_task", "began", "gone")

    def __init__(self, scope: Mapping[str, Any], receive: Any) -> None:
        self._listener: Listener | None = (scope.get("extensions") or {}).get(EXTENSION)
        self._receive = receive
        self._owner: asyncio.Task[Any] | None = None
        self._task: asyncio.Task[None] | None = None
        self.gone = False
        self.began = time.monotonic() if self._listener is None else self._listener.began

    @property
    def arrived(self) -> bool:
        """Return whether the whole body has arrived: reading it needs no deadline."""
        return self._listener is not None and self._listener.arrived

    def start(self) -> None:
        """Begin to watch; the body must have been read."""
        self._owner = asyncio.current_task()
        if self._listener is None:
            self._task = asyncio.get_running_loop().create_task(self._wait())
        else:
            self._listener.call = self._cancel

    def stop(self) -> None:
        """End watching."""
        if self._listener is not None:
            self._listener.call = None
        if self._task is not None:
            self._task.cancel()

    def _cancel(self) -> None:
        assert self._owner is not None
        self.gone = True
        self._owner.cancel()

    async def _wait(self) -> None:
        while (await self._receive())["type"] != "http.disconnect":
            pass
        self._cancel()
