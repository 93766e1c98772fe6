"""Limits connections in ways that uvicorn's protocols cannot, and notices clients that disconnect.

How it works: the head of a request is collected here and passed to uvicorn as a whole, so that its
size and duration can be limited. While a request is answered, reading goes on, though uvicorn stops
reading after large bodies: only reading reveals that a client has disconnected. Bytes that a client
sends before it has its answer are dropped, and the connection ends with the answer (RFC 9112,
section 9.3.2).
"""

from __future__ import annotations

import importlib.util
import itertools
import math
import re
import time
from typing import TYPE_CHECKING, Any, Literal

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable, Iterable

    from encoder_engine.serving.signals import Signals

__all__ = ["HEADER_BYTES", "IDLE_SECONDS", "connection_class", "end_late"]

# Seconds for the head of a request from its first byte, and for the rest of a body whose request is
# answered already.
HEADER_SECONDS = 10.0
# Seconds in which a client takes 64 KiB of its answer, the buffer of the transport.
WRITE_SECONDS = 30.0
# Longer than the idle time of proxies, which otherwise send requests into closing connections.
IDLE_SECONDS = 75
HEADER_BYTES, MOST_HEADERS = 16_384, 64
_TOO_LARGE = (
    b'{"error":"headers are larger than 16 KiB, or more than 64","error_type":"Validation"}'
)
_RESPONSE_431 = (
    b"HTTP/1.1 431 Request Header Fields Too Large\r\ncontent-type: application/json\r\n"
    b"content-length: %d\r\nconnection: close\r\n\r\n%b" % (len(_TOO_LARGE), _TOO_LARGE)
)
# httptools skips the body of a request whose upgrade header asks for HTTP/2, as Java's client does
# at first. A server may ignore the header (RFC 9110, section 7.8); under another name httptools
# does.
_UPGRADE = re.compile(rb"(?<=\r\n)upgrade(?=:)", re.IGNORECASE)
_numbers = itertools.count()


class _Connection:
    """A mixin for uvicorn's protocol classes, which limits a connection's time and sizes.

    deadline: the :func:`time.monotonic` at which the connection is ended.
    """

    signals: Signals
    deadline = math.inf
    # The beginning of a head that is not whole yet, and the bytes since the last content of a body.
    _head = b""
    _framing_bytes = 0
    _write_paused = False
    # Of uvicorn's classes: the last request that was read, and the one that is answered.
    cycle: Any
    running: Any
    flow: Any
    transport: asyncio.Transport
    client: tuple[str, int] | None
    _reads_head: Callable[[], bool]
    _has_more: Callable[[], bool]

    def connection_made(self, transport: asyncio.Transport) -> None:
        """Count the connection, and wait for its first request."""
        super().connection_made(transport)  # type: ignore[misc]
        self.signals.connections += 1
        self.deadline = time.monotonic() + IDLE_SECONDS
        if self.client is None:
            # Connections of a Unix socket have no address, and take turns like others.
            self.client = ("unix", next(_numbers))

    def connection_lost(self, exc: Exception | None) -> None:
        """Tell the request that is being answered that its client is gone.

        Uvicorn tells only the request that was read last.
        """
        self.signals.connections -= 1
        running = self.running
        if running is not None and not running.response_complete:
            running.disconnected = True
            running.message_event.set()
        super().connection_lost(exc)  # type: ignore[misc]

    def data_received(self, data: bytes) -> None:
        """Read bytes of a request.

        Drop bytes that arrive between a whole request and its answer.
        """
        if self.transport.is_closing():
            return
        if self._answering():
            self.running.keep_alive = False
        elif self._reads_head():
            self._receive_head(data)
        else:
            self._receive_body(data)

    def _receive_head(self, data: bytes) -> None:
        if not self._head:
            self.deadline = time.monotonic() + HEADER_SECONDS
        head = self._head + data
        end = head.find(b"\r\n\r\n") + 4
        # Bytes that begin with neither a letter nor a line end are no head, and may never end.
        whole = end > 3 or not (head[:1].isalpha() or head[:1] in b"\r\n")
        size = end if end > 3 else len(head)
        if size > HEADER_BYTES or head.count(b"\r\n", 0, size) > MOST_HEADERS + 2:
            self.transport.write(_RESPONSE_431)
            self.transport.close()
        elif not whole:
            self._head = head
        else:
            self._head, self._framing_bytes = b"", 0
            self._feed(_UPGRADE.sub(b"x-upgrade", head[:end]) + head[end:] if end > 3 else head)

    def _receive_body(self, data: bytes) -> None:
        running = self.running
        before = len(running.body)
        self._feed(data)
        self._framing_bytes += len(data)
        if running.response_complete or len(running.body) > before:
            self._framing_bytes = 0
        elif self._framing_bytes > HEADER_BYTES:
            # Trailers or extensions of chunks without end.
            self.transport.abort()

    def _feed(self, data: bytes) -> None:
        super().data_received(data)  # type: ignore[misc]
        if self._answering():
            self.deadline = math.inf
            self.flow.resume_reading()
            self.running.keep_alive &= not self._has_more()
        elif self._has_more():
            self.transport.close()
        elif self.running is not None and not self.running.response_complete:
            self.deadline = math.inf
        elif self._reads_head():
            # The end of a body that nobody read.
            self.deadline = time.monotonic() + IDLE_SECONDS

    def _answering(self) -> bool:
        """Return whether a request has arrived whole and its answer is not complete."""
        running = self.running
        return running is not None and not running.more_body and not running.response_complete

    def on_response_complete(self) -> None:
        """Set the time limit for the next request, or for the rest of this one's body."""
        super().on_response_complete()  # type: ignore[misc]
        seconds = IDLE_SECONDS if self._reads_head() else HEADER_SECONDS
        self.deadline = time.monotonic() + seconds

    def send_400_response(self, msg: str) -> None:
        """Answer bytes that are not an HTTP request; drop them if they follow a whole request."""
        if self._answering():
            self.running.keep_alive = False
        else:
            super().send_400_response(msg)  # type: ignore[misc]

    def pause_writing(self) -> None:
        """Pause the answer while the client does not read, and set the time limit of the pause."""
        self._write_paused, self.deadline = True, time.monotonic() + WRITE_SECONDS
        super().pause_writing()  # type: ignore[misc]

    def resume_writing(self) -> None:
        """Go on writing, as the client has read."""
        self._write_paused, self.deadline = False, math.inf
        super().resume_writing()  # type: ignore[misc]

    def end_late(self, now: float) -> None:
        """End the connection if its deadline has passed."""
        if now > self.deadline:
            self.signals.cancelled["answer"] += self._write_paused
            self.deadline = math.inf
            self.transport.abort()


def end_late(connections: Iterable[Any]) -> None:
    """End those of a server's connections whose clients are too slow."""
    now = time.monotonic()
    for connection in list(connections):
        connection.end_late(now)


def connection_class(
    signals: Signals, http: Literal["auto", "h11", "httptools"] = "auto"
) -> type[asyncio.Protocol]:
    """Return uvicorn's protocol class, limited by :class:`_Connection`.

    signals: the service's counters, of open connections and of answers cut off.
    http: the parser; ``"auto"``: httptools where it is installed, else h11.
    """
    found = {"signals": signals}
    if http == "h11" or (http == "auto" and importlib.util.find_spec("httptools") is None):
        return type("BoundedH11", (_Connection, _H11), found)
    return type("BoundedHttpTools", (_Connection, _httptools_class()), found)


class _H11(H11Protocol):
    @property
    def running(self) -> Any:
        return self.cycle

    def _reads_head(self) -> bool:
        return self.conn.their_state is h11.IDLE

    def _has_more(self) -> bool:
        return self.conn.their_state is not h11.SEND_BODY and bool(self.conn.trailing_data[0])


def _httptools_class() -> type[asyncio.Protocol]:
    from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

    class HttpTools(HttpToolsProtocol):
        running: Any = None
        # Whether the parser is within a request, and within its head.
        _in_request = _in_head = False

        def on_message_begin(self) -> None:
            self._in_request = self._in_head = True
            super().on_message_begin()

        def on_header(self, name: bytes, value: bytes) -> None:
            # Trailers are no headers (RFC 9110, section 6.5.1).
            if self._in_head:
                super().on_header(name, value)

        def on_headers_complete(self) -> None:
            self._in_head = False
            super().on_headers_complete()

        def on_message_complete(self) -> None:
            self._in_request = False
            super().on_message_complete()

        def _start_asgi_task(self, cycle: Any, app: Any) -> None:
            self.running = cycle
            super()._start_asgi_task(cycle, app)

        def _reads_head(self) -> bool:
            return not self._in_request

        def _has_more(self) -> bool:
            return self._in_head or self.cycle is not self.running

    return HttpTools
