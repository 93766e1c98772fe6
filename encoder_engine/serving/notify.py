"""Notifies systemd of readiness, liveness and shutdown (sd_notify(3))."""

from __future__ import annotations

import asyncio
import os
import socket
from typing import TYPE_CHECKING, Self

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

__all__ = ["Notifier"]


class Notifier:
    """Sends states to systemd's notification socket; does nothing without one.

    address: the path of the socket; ``@`` begins an abstract one.
    watchdog_seconds: systemd restarts the service after this time without a sign of life.
    """

    def __init__(self, address: str | None, watchdog_seconds: float | None = None) -> None:
        self._address = address
        self._watchdog_seconds = watchdog_seconds if address else None
        self._feeding: asyncio.Task[None] | None = None

    @classmethod
    def from_environment(cls, variables: Mapping[str, str] = os.environ) -> Self:
        """Read NOTIFY_SOCKET, and WATCHDOG_USEC if it is meant for this process."""
        microseconds = variables.get("WATCHDOG_USEC", "")
        own = variables.get("WATCHDOG_PID", str(os.getpid())) == str(os.getpid())
        seconds = int(microseconds) / 1e6 if own and microseconds.isdigit() else None
        return cls(variables.get("NOTIFY_SOCKET"), seconds)

    def ready(self, lives: Callable[[], bool]) -> None:
        """Report readiness, and from then on ping the watchdog while ``lives()`` is true."""
        self._send("READY=1")
        if self._watchdog_seconds:
            self._feeding = asyncio.ensure_future(self._feed(self._watchdog_seconds / 3, lives))

    def stopping(self) -> None:
        """Report that the server is shutting down."""
        self._send("STOPPING=1")

    def close(self) -> None:
        """Stop pinging the watchdog."""
        if self._feeding is not None:
            self._feeding.cancel()

    async def _feed(self, seconds: float, lives: Callable[[], bool]) -> None:
        while True:
            if lives():
                self._send("WATCHDOG=1")
            await asyncio.sleep(seconds)

    def _send(self, state: str) -> None:
        if not self._address:
            return
        address = f"\0{self._address[1:]}" if self._address[0] == "@" else self._address
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as connection:
            try:
                connection.sendto(state.encode(), address)
            except OSError:
                # systemd went away; requests are worth more than its state.
                return
