"""Bounds connections where uvicorn does not: slow or large headers, and readers that do not read.

uvicorn waits for ever for the end of headers, and for a client that does not take its answer.
httptools takes headers of any size; h11 stops at 16 KiB by itself.
"""

from __future__ import annotations

import importlib.util
import itertools
from typing import TYPE_CHECKING, Any, Literal

from uvicorn.protocols.http.h11_impl import H11Protocol

if TYPE_CHECKING:
    import asyncio

    from encoder_engine.serving.signals import Signals

__all__ = ["HEADER_BYTES", "protocol_class"]

# Seconds for the headers of a request from its first byte, and for what an answered request still
# sends of its body.
HEADER_SECONDS = 10.0
# Seconds in which a client takes 64 KiB of its answer, the buffer of the transport.
WRITE_SECONDS = 30.0
# Above the idle time of proxies, which otherwise send requests into closing connections.
IDLE_SECONDS = 75
HEADER_BYTES, MOST_HEADERS = 16_384, 64
_TOO_LARGE = b"headers are larger than 16 KiB, or more than 64"
_RESPONSE_431 = (
    b"HTTP/1.1 431 Request Header Fields Too Large\r\ncontent-type: text/plain; charset=utf-8\r\n"
    b"content-length: %d\r\nconnection: close\r\n\r\n%b" % (len(_TOO_LARGE), _TOO_LARGE)
)
_numbers = itertools.count()


class _Timed:
    """The times of a connection; mixed into a protocol class of uvicorn."""

    signals: Signals
    _read_timer: asyncio.TimerHandle | None = None
    _write_timer: asyncio.TimerHandle | None = None
    # Whether headers have begun and not ended, or an answered request still sends its body.
    _partial = False
    # Of uvicorn's classes.
    transport: asyncio.Transport
    loop: asyncio.AbstractEventLoop
    cycle: Any
    client: tuple[str, int] | None
    timeout_keep_alive_task: asyncio.TimerHandle | None

    def connection_made(self, transport: asyncio.Transport) -> None:
        """Count the connection, and wait for its first request."""
        super().connection_made(transport)  # type: ignore[misc]
        self.signals.connections += 1
        if self.client is None:
            # Connections of a Unix socket have no address, and take turns like others.
            self.client = ("unix", next(_numbers))
        self._read_timer = self.loop.call_later(IDLE_SECONDS, self._abort)

    def connection_lost(self, exc: Exception | None) -> None:
        """Forget the connection."""
        self.signals.connections -= 1
        self._cancel_read()
        self._cancel_write()
        super().connection_lost(exc)  # type: ignore[misc]

    def data_received(self, data: bytes) -> None:
        """Read bytes; those that belong to no running request have a deadline."""
        super().data_received(data)  # type: ignore[misc]
        if self._answering():
            self._cancel_read()
            self._partial = False
        elif self.timeout_keep_alive_task is None and not self._partial:
            self._partial = True
            self._cancel_read()
            self._read_timer = self.loop.call_later(HEADER_SECONDS, self._abort)

    def pause_writing(self) -> None:
        """Stop writing, and give the client a time to read."""
        super().pause_writing()  # type: ignore[misc]
        if self._write_timer is None:
            self._write_timer = self.loop.call_later(WRITE_SECONDS, self._abort_reader)

    def resume_writing(self) -> None:
        """Write again."""
        self._cancel_write()
        super().resume_writing()  # type: ignore[misc]

    def _answering(self) -> bool:
        return self.cycle is not None and not self.cycle.response_complete

    def _cancel_read(self) -> None:
        if self._read_timer is not None:
            self._read_timer.cancel()
            self._read_timer = None

    def _cancel_write(self) -> None:
        if self._write_timer is not None:
            self._write_timer.cancel()
            self._write_timer = None

    def _abort(self) -> None:
        self.transport.abort()

    def _abort_reader(self) -> None:
        self.signals.cancelled["answer"] += 1
        self.transport.abort()


def protocol_class(
    signals: Signals, http: Literal["auto", "h11", "httptools"] = "auto"
) -> type[asyncio.Protocol]:
    """Return uvicorn's protocol class with bounds; auto: httptools where it is installed."""
    found = {"signals": signals}
    if http == "h11" or (http == "auto" and importlib.util.find_spec("httptools") is None):
        return type("BoundedH11", (_Timed, H11Protocol), found)
    return type("BoundedHttpTools", (_Timed, _httptools_class()), found)


def _httptools_class() -> type[asyncio.Protocol]:
    from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

    class HeaderBounds(HttpToolsProtocol):
        """Counts the bytes and the number of headers, also while they arrive."""

        _in_headers = _too_large = False
        _num_bytes = _num_headers = 0

        def data_received(self, data: bytes) -> None:
            super().data_received(data)
            if self._in_headers and not self.transport.is_closing():
                self._num_bytes += len(data)
                if self._num_bytes > HEADER_BYTES:
                    self._refuse()

        def on_message_begin(self) -> None:
            super().on_message_begin()
            self._in_headers, self._num_bytes, self._num_headers = True, 0, 0

        def on_url(self, url: bytes) -> None:
            self._check(len(url))
            super().on_url(url)

        def on_header(self, name: bytes, value: bytes) -> None:
            self._num_headers += 1
            self._check(len(name) + len(value))
            super().on_header(name, value)

        def on_headers_complete(self) -> None:
            self._in_headers = False
            super().on_headers_complete()

        def send_400_response(self, msg: str) -> None:
            if self._too_large:
                self._refuse()
            else:
                super().send_400_response(msg)

        def _check(self, num_bytes: int) -> None:
            """Stop the parser, which then calls :meth:`send_400_response`."""
            self._num_bytes += num_bytes
            if self._num_bytes > HEADER_BYTES or self._num_headers > MOST_HEADERS:
                self._too_large = True
                raise ValueError("headers too large")

        def _refuse(self) -> None:
            self.transport.write(_RESPONSE_431)
            self.transport.close()

    return HeaderBounds
