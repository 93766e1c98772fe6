"""Loads an HTTP server from one thread: closed loops, and an open loop with Poisson arrivals.

A closed loop sends the next request when the last one was answered, so a server that stalls is sent
less, and the wait is missing from its percentiles. An open loop sends at times that were drawn
beforehand, and counts latency from them. Where the generator itself has too little of the CPU, it
sends late. Each answer says how late, so that this delay is not counted as the server's.

It needs the standard library alone, because it also runs in the environments of peers.
"""

from __future__ import annotations

import asyncio
import errno
import gc
import random
import time
from contextlib import contextmanager
from dataclasses import dataclass
from operator import attrgetter
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator

# Seconds that an open loop waits for answers after its last request: the server's queue holds 10
# seconds of work.
LAST_SECONDS = 20.0


class Answer(NamedTuple):
    """The answer to a request; status 0: there was none.

    seconds: from the time when the request was due.
    number: of the request.
    failure: where there was none, the class of the exception, with the name of a system error that
        has no class of its own, as ``OSError EMFILE``.
    late_seconds: from the time when the request was due until the generator turned to it; its part
        of ``seconds`` is the generator's, not the server's. A new connection is opened after it.
    """

    status: int
    seconds: float
    body: bytes
    number: int
    failure: str = ""
    late_seconds: float = 0.0


@dataclass(frozen=True, kw_only=True)
class Target:
    """An address, and the bodies that are sent to it in turn."""

    host: str
    port: int
    path: str
    bodies: tuple[bytes, ...]

    def request(self, number: int) -> bytes:
        """Return the bytes of a request."""
        body = self.bodies[number % len(self.bodies)]
        head = (
            f"POST {self.path} HTTP/1.1\r\nhost: {self.host}:{self.port}\r\n"
            f"content-type: application/json\r\ncontent-length: {len(body)}\r\n\r\n"
        )
        return head.encode() + body


class _Connection(asyncio.Protocol):
    """A kept-alive connection with one request at a time."""

    def __init__(self) -> None:
        self._transport: asyncio.Transport | None = None
        self._received = bytearray()
        self._answer: asyncio.Future[tuple[int, bytes]] | None = None
        self.open = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport, self.open = transport, True

    def connection_lost(self, exc: Exception | None) -> None:
        self.open = False
        if self._answer is not None and not self._answer.done():
            self._answer.set_exception(exc or EOFError("the server closed the connection"))

    def data_received(self, data: bytes) -> None:
        self._received += data
        found = _parse(self._received)
        if found is not None and self._answer is not None and not self._answer.done():
            # Of a connection that the server ends, another request would fail.
            self.open = self.open and not _closes(self._received)
            self._received.clear()
            self._answer.set_result(found)

    async def send(self, request: bytes) -> tuple[int, bytes]:
        """Send a request over an open connection, and return the status and the body.

        Raises :class:`OSError`, and :class:`EOFError` where the server ends the connection instead.
        """
        assert self._transport is not None
        self._answer = asyncio.get_running_loop().create_future()
        self._transport.write(request)
        return await self._answer

    def close(self) -> None:
        if self._transport is not None:
            self._transport.abort()


def _parse(received: bytearray) -> tuple[int, bytes] | None:
    """Return the status and the body of a whole answer, or None."""
    end = received.find(b"\r\n\r\n")
    if end < 0:
        return None
    head = bytes(received[:end]).lower()
    status = int(head[9:12])
    start = end + 4
    place = head.find(b"\r\ncontent-length:")
    if place >= 0:
        size = int(head[place + 17 :].split(b"\r\n", 1)[0])
        return (
            (status, bytes(received[start : start + size]))
            if len(received) >= start + size
            else None
        )
    if not received.endswith(b"0\r\n\r\n"):
        return None
    parts: list[bytes] = []
    while True:
        line_end = received.find(b"\r\n", start)
        size = int(bytes(received[start:line_end]), 16)
        if size == 0:
            return status, b"".join(parts)
        parts.append(bytes(received[line_end + 2 : line_end + 2 + size]))
        start = line_end + 2 + size + 2


def _closes(received: bytearray) -> bool:
    """Return whether an answer says that its connection ends."""
    head = bytes(received[: received.index(b"\r\n\r\n")]).lower()
    return b"\r\nconnection: close" in head


class _Client:
    """Sends requests to a target, over connections that are kept where they stay open."""

    def __init__(self, target: Target) -> None:
        self._target = target
        self._idle: list[_Connection] = []

    async def ask(self, number: int, due: float) -> Answer:
        """Send a request over an idle connection, or a new one where none is idle."""
        late, status, body, failure = time.perf_counter() - due, 0, b"", ""
        connection: _Connection | None = None
        try:
            connection = await self._connect()
            status, body = await connection.send(self._target.request(number))
        except Exception as error:
            # Also an answer that is no HTTP: whatever was sent is counted.
            failure = _name_of(error)
        finally:
            if connection is not None and connection.open and status:
                self._idle.append(connection)
            elif connection is not None:
                connection.close()
        return Answer(status, time.perf_counter() - due, body, number, failure, late)

    def close(self) -> None:
        """Close the idle connections."""
        for connection in self._idle:
            connection.close()

    async def _connect(self) -> _Connection:
        while self._idle:
            # The server may have ended it since its last answer.
            if (connection := self._idle.pop()).open:
                return connection
        host, port = self._target.host, self._target.port
        loop = asyncio.get_running_loop()
        _, connection = await loop.create_connection(_Connection, host, port)
        return connection


def _name_of(error: Exception) -> str:
    """Return the class of an error, with the system's name where that says more."""
    number = error.errno if type(error) is OSError else None
    name = type(error).__name__
    return name if number is None else f"{name} {errno.errorcode.get(number, number)}"


def closed_loop(target: Target, *, connections: int, requests: int) -> list[Answer]:
    """Send so many requests over connections that each wait for their answer, in order."""
    return asyncio.run(_closed_loop(target, connections, requests))


async def _closed_loop(target: Target, connections: int, requests: int) -> list[Answer]:
    found: list[Answer] = []
    numbers = iter(range(requests))

    async def work() -> None:
        client = _Client(target)
        found.extend([await client.ask(number, time.perf_counter()) for number in numbers])
        client.close()

    await asyncio.gather(*(work() for _ in range(connections)))
    return sorted(found, key=attrgetter("number"))


def open_loop(target: Target, *, rate: float, seconds: float, seed: int) -> list[Answer]:
    """Send requests at :func:`arrivals`; a connection is opened where none is idle."""
    with _uncollected():
        return asyncio.run(_open_loop(target, arrivals(rate=rate, seconds=seconds, seed=seed)))


def arrivals(*, rate: float, seconds: float, seed: int) -> list[float]:
    """Draw the times of a Poisson process, from 0 to some seconds."""
    draw, due, times = random.Random(seed), 0.0, list[float]()
    while (due := due + draw.expovariate(rate)) < seconds:
        times.append(due)
    return times


@contextmanager
def _uncollected() -> Iterator[None]:
    """Collect no garbage: a pass over all answers would stop the generator, not the server."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


async def _open_loop(target: Target, times: list[float]) -> list[Answer]:
    client, found = _Client(target), list[Answer]()

    async def work(number: int, due: float) -> None:
        found.append(await client.ask(number, due))

    start = time.perf_counter()
    tasks: dict[asyncio.Task[None], int] = {}
    for number, offset in enumerate(times):
        wait = start + offset - time.perf_counter()
        if wait > 0:
            await asyncio.sleep(wait)
        tasks[asyncio.create_task(work(number, start + offset))] = number
    if tasks:
        _, late = await asyncio.wait(tasks, timeout=LAST_SECONDS)
        end = time.perf_counter()
        for task in late:
            number = tasks[task]
            found.append(Answer(0, end - start - times[number], b"", number, "TimeoutError"))
            task.cancel()
        await asyncio.gather(*late, return_exceptions=True)
    client.close()
    return found


def percentile(answers: list[Answer], share: float) -> float:
    """Return the seconds that a share of the answers took at most; 0 without answers."""
    times = sorted(answer.seconds for answer in answers)
    return times[min(int(share * len(times)), len(times) - 1)] if times else 0.0
