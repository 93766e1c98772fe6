"""Bounds connections where uvicorn does not: slow or large headers, and readers that do not read.

uvicorn waits for ever for the end of headers, and for a client that does not take its answer.
httptools takes headers of any size; h11 stops at 16 KiB by itself.

uvicorn answers bytes that are no request at once, before the answers to pipelined requests that
came first, and tells the last of them alone that the client is gone. Here the earlier requests are
answered, and then the connection ends.
"""

from __future__ import annotations

import importlib.util
import itertools
from functools import partial
from typing import TYPE_CHECKING, Any, Literal

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

from encoder_engine.serving.http.disconnect import EXTENSION, Listener

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable

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
_TOO_LARGE = (
    b'{"error":"headers are larger than 16 KiB, or more than 64","error_type":"Validation"}'
)
_RESPONSE_431 = (
    b"HTTP/1.1 431 Request Header Fields Too Large\r\ncontent-type: application/json\r\n"
    b"content-length: %d\r\nconnection: close\r\n\r\n%b" % (len(_TOO_LARGE), _TOO_LARGE)
)
_numbers = itertools.count()


class _OpenTransport:
    """A transport that writes the head of an answer together with the start of its body.

    uvicorn writes them one by one, and each costs a system call. After the end it drops what is
    written, where uvloop raises RuntimeError.
    """

    def __init__(self, transport: asyncio.Transport) -> None:
        self._transport = transport
        self._head = b""

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)

    def write(self, data: bytes) -> None:
        if data[-4:] == b"\r\n\r\n" and data[:7] == b"HTTP/1." and data[9:12] != b"100":
            # A body follows, if an empty one.
            self._head += data
            return
        head, self._head = self._head, b""
        if not self._transport.is_closing():
            self._transport.write(head + data if head else data)

    def flush(self) -> None:
        """Write a head that has no body: that of an answer to HEAD."""
        if self._head:
            self.write(b"")

    def close(self) -> None:
        self.flush()
        self._transport.close()


class _Timed:
    """The times and the end of a connection; mixed into a protocol class of uvicorn."""

    signals: Signals
    _read_timer: asyncio.TimerHandle | None = None
    _write_timer: asyncio.TimerHandle | None = None
    # Whether headers have begun and not ended, or an answered request still sends its body.
    _partial = False
    # Whether the body of an answered request has ended, and no other request has begun.
    _rest_ended = False
    # Whether bytes came that are no request: nothing after them is read.
    _broken = False
    # The requests without a complete answer, of which the first is running; leaves out the last.
    _cycles: Callable[[], list[Any]]
    _forget_last: Callable[[], None]
    # Of uvicorn's classes.
    transport: _OpenTransport
    loop: asyncio.AbstractEventLoop
    cycle: Any
    client: tuple[str, int] | None
    timeout_keep_alive_task: asyncio.TimerHandle | None
    timeout_keep_alive_handler: Callable[[], None]
    _unset_keepalive_if_required: Callable[[], None]

    def connection_made(self, transport: asyncio.Transport) -> None:
        """Count the connection, and wait for its first request."""
        super().connection_made(_OpenTransport(transport))  # type: ignore[misc]
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
        self._disconnect()
        super().connection_lost(exc)  # type: ignore[misc]

    def data_received(self, data: bytes) -> None:
        """Read bytes; those that belong to no running request have a deadline."""
        if self._broken:
            return
        super().data_received(data)  # type: ignore[misc]
        if self._answering():
            self._cancel_read()
            self._partial = False
        elif self._rest_ended:
            self._cancel_read()
            self._partial = self._rest_ended = False
            self._unset_keepalive_if_required()
            self.timeout_keep_alive_task = self.loop.call_later(
                IDLE_SECONDS, self.timeout_keep_alive_handler
            )
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

    def send_400_response(self, msg: str) -> None:
        """Answer bytes that are no request."""
        self._refuse_with(partial(super().send_400_response, msg))  # type: ignore[misc]

    def on_response_complete(self) -> None:
        """Go on with the next request."""
        self.transport.flush()
        super().on_response_complete()  # type: ignore[misc]

    def _refuse_with(self, write: Callable[[], None]) -> None:
        """Answer the requests that came whole, and end the connection; without one, ``write``."""
        self._broken = True
        cycles = self._cycles()
        if len(cycles) > 1 and cycles[-1].more_body:
            self._forget_last()
            cycles.pop()
        if cycles and not cycles[-1].more_body:
            cycles[-1].keep_alive = False
            return
        if cycles and cycles[-1].response_started:
            self.transport.close()
        else:
            write()
        self._disconnect()

    def _disconnect(self) -> None:
        """Tell the requests that nobody takes their answers."""
        for cycle in self._cycles():
            cycle.disconnected = True
            cycle.message_event.set()
            listener = cycle.scope.get("extensions", {}).get(EXTENSION)
            if listener is not None:
                listener.tell()

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
        self._disconnect()
        self.transport.abort()

    def _abort_reader(self) -> None:
        self.signals.cancelled["answer"] += 1
        self._abort()


def protocol_class(
    signals: Signals, http: Literal["auto", "h11", "httptools"] = "auto"
) -> type[asyncio.Protocol]:
    """Return uvicorn's protocol class with bounds; auto: httptools where it is installed."""
    found = {"signals": signals}
    if http == "h11" or (http == "auto" and importlib.util.find_spec("httptools") is None):
        return type("BoundedH11", (_Timed, _H11), found)
    return type("BoundedHttpTools", (_Timed, _httptools_class()), found)


class _H11(H11Protocol):
    """Reads a request when the one before it is answered."""

    def handle_events(self) -> None:
        rests = self.conn.our_state is h11.DONE and self.conn.their_state is h11.SEND_BODY
        super().handle_events()
        ended = rests and self.conn.their_state is h11.IDLE
        self._rest_ended = ended and not self.conn.trailing_data[0]

    def _cycles(self) -> list[Any]:
        return [] if self.cycle is None or self.cycle.response_complete else [self.cycle]

    def _forget_last(self) -> None:
        raise AssertionError("no request waits")


def _httptools_class() -> type[asyncio.Protocol]:
    from httptools import HttpParserError, HttpParserUpgrade, HttpRequestParser
    from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

    class HeaderBounds(HttpToolsProtocol):
        """Counts the bytes and the number of headers, also while they arrive."""

        _in_headers = _too_large = _upgrading = False
        # Bytes of the fields that are complete, and of the line that has not ended.
        _num_bytes = _line_bytes = 0
        # Whether the last bytes that came have a part of a body.
        _with_body = False
        _running: Any = None
        _listener: Listener
        _refuse_with: Callable[[Callable[[], None]], None]

        def data_received(self, data: bytes) -> None:
            self._unset_keepalive_if_required()
            self._with_body = False
            self._parse(data)
            if not self._with_body and not self.transport.is_closing():
                # Headers, or the trailers of a body in chunks.
                end = data.rfind(b"\n") + 1
                self._line_bytes = len(data) - end + (0 if end else self._line_bytes)
                if self._num_bytes + self._line_bytes > HEADER_BYTES:
                    self._refuse()

        def _parse(self, data: bytes) -> None:
            """Read requests; one that asks for another protocol is answered by HTTP/1.1.

            So RFC 9110, section 7.8, allows. Java's client asks for HTTP/2 (h2c) at first, also
            where it sends a body. The parser would skip that body and everything after it.
            """
            rest: bytes = data
            while rest:
                try:
                    self.parser.feed_data(rest)
                    return
                except HttpParserUpgrade as upgrade:
                    rest = rest[upgrade.args[0] :]
                    if not self._upgrading:
                        # CONNECT: what follows is no HTTP.
                        self.send_400_response("Invalid HTTP request received.")
                        return
                    self._upgrading = False
                    rest = self._plain_head() + rest
                    self.parser = HttpRequestParser(self)
                except HttpParserError:
                    self.send_400_response("Invalid HTTP request received.")
                    return

        def on_message_begin(self) -> None:
            super().on_message_begin()
            self._in_headers, self._num_bytes, self._line_bytes = True, 0, 0
            self._rest_ended = False

        def on_url(self, url: bytes) -> None:
            self._check(len(url))
            super().on_url(url)

        def on_header(self, name: bytes, value: bytes) -> None:
            self._check(len(name) + len(value))
            # Trailers are no headers (RFC 9110, section 6.5.1).
            if self._in_headers:
                super().on_header(name, value)

        def on_headers_complete(self) -> None:
            self._in_headers = False
            connects = self.parser.get_method() == b"CONNECT"
            self._upgrading = self.parser.should_upgrade() and not connects
            if not self._upgrading:
                super().on_headers_complete()

        def on_body(self, body: bytes) -> None:
            self._with_body = True
            super().on_body(body)

        def on_message_complete(self) -> None:
            if not self._upgrading:
                super().on_message_complete()
                if self.cycle.response_complete:
                    self._rest_ended = True
                # A request that waits for its turn gets its listener then.
                elif self._running is self.cycle:
                    self._listener.arrived = not self.cycle.more_body

        def _plain_head(self) -> bytes:
            """Write the head of a request again, without the wish for another protocol."""
            lines = [b"%b %b HTTP/1.1" % (self.parser.get_method(), self.url)]
            for name, value in self.headers:
                if name == b"connection":
                    words = [word.strip().lower() for word in value.split(b",")]
                    value = b"close" if b"close" in words else b"keep-alive"
                if name != b"upgrade":
                    lines.append(name + b": " + value)
            return b"\r\n".join(lines) + b"\r\n\r\n"

        def send_400_response(self, msg: str) -> None:
            if self._too_large:
                self._write_431()
            else:
                super().send_400_response(msg)

        def _check(self, num_bytes: int) -> None:
            """Stop the parser, which then calls :meth:`send_400_response`."""
            self._num_bytes += num_bytes
            if self._num_bytes > HEADER_BYTES or len(self.headers) >= MOST_HEADERS:
                self._too_large = True
                raise ValueError("headers too large")

        def _refuse(self) -> None:
            self._refuse_with(self._write_431)

        def _write_431(self) -> None:
            self.transport.write(_RESPONSE_431)
            self.transport.close()

        def _start_asgi_task(self, cycle: Any, app: Any) -> None:
            self._running, self._listener = cycle, Listener(arrived=not cycle.more_body)
            cycle.scope["extensions"] = {EXTENSION: self._listener}
            super()._start_asgi_task(cycle, app)

        def _cycles(self) -> list[Any]:
            found = [self._running, *(cycle for cycle, _ in reversed(self.pipeline))]
            return [cycle for cycle in found if cycle is not None and not cycle.response_complete]

        def _forget_last(self) -> None:
            self.pipeline.popleft()

    return HeaderBounds
