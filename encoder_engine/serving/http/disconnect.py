"""Cancels the task of a request whose client disconnects."""

from __future__ import annotations

import asyncio
from typing import Any

__all__ = ["Watch"]


class Watch:
    """Cancels the task of a request when the client disconnects.

    The task that calls :meth:`start` is watched until :meth:`stop`. A second task of the request
    waits for ``http.disconnect``, which every ASGI server sends.

    gone: whether the client has disconnected.
    """

    __slots__ = ("_receive", "_task", "gone")

    def __init__(self, receive: Any) -> None:
        self._receive = receive
        self._task: asyncio.Task[None] | None = None
        self.gone = False

    def start(self) -> None:
        """Start to watch for a disconnection; the body must have been read."""
        owner = asyncio.current_task()
        assert owner is not None
        self._task = asyncio.get_running_loop().create_task(self._wait(owner))

    def stop(self) -> None:
        """Stop watching."""
        if self._task is not None:
            self._task.cancel()
            # The traceback of its end refers to this object.
            self._task = None

    async def _wait(self, owner: asyncio.Task[Any]) -> None:
        while (await self._receive())["type"] != "http.disconnect":
            pass
        self.gone = True
        owner.cancel()
