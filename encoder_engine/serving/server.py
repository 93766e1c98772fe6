"""Runs a service behind uvicorn: in a thread of its own, or as the process of ``serve``.

The server shuts down without losing accepted requests: on SIGTERM it first reports that it is not
ready; after ``drain_delay`` it closes the socket and answers with ``connection: close``, computes
the waiting requests within ``drain_timeout``, and exits. Requests that are left then are answered
with 503, and the exit status is 1. A second signal ends the server at once.
"""

from __future__ import annotations

import asyncio
import errno
import gc
import logging
import signal
import socket
import sys
import threading
import time
from typing import TYPE_CHECKING, Any, Literal, Self

import uvicorn

from encoder_engine.errors import ServiceError
from encoder_engine.serving.http.app import App, asgi_app
from encoder_engine.serving.http.connection import (
    HEADER_BYTES,
    IDLE_SECONDS,
    connection_class,
    end_late,
)
from encoder_engine.serving.notify import Notifier

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import FrameType, TracebackType

    from encoder_engine.serving.service import Service

__all__ = ["Server", "run_server"]

Http = Literal["auto", "h11", "httptools"]
LOGGER = logging.getLogger("encoder_engine.serving")
# A busy engine thread hands the interpreter over after this time; by default 5 ms, which makes the
# event loop's 99th percentile 15 ms instead of 3.3.
SWITCH_SECONDS = 1e-4
START_SECONDS = 120.0
# Seconds for which connections stay open after the end began: a request that is under way on one is
# answered, and its answer says that no other may follow.
CLOSE_SECONDS = 0.3
# Seconds to write answers after the last one was computed.
WRITE_SECONDS = 5.0
# uvloop accepts one connection of each socket in a pass. A pass beside a full queue is long, and
# with one socket the last of many new connections waits for as many passes. Over TCP alone: a Unix
# socket has one listener.
NUM_LISTENERS = 8
# Seconds after which uvicorn checks again whether it should end.
TICK_SECONDS = 0.1


class _Uvicorn(uvicorn.Server):
    """A uvicorn server that answers all accepted requests before it ends (it drains).

    answered: whether every answer was written.
    """

    def __init__(self, config: uvicorn.Config, service: Service) -> None:
        super().__init__(config)
        self._service = service
        self._signalled = False
        self.answered = False

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """Begin to drain at the first signal; exit at once at the second."""
        if self._signalled:
            self.force_exit = True
            self.should_exit = True
            return
        self._signalled = True
        self.drain()
        del sig, frame

    def drain(self) -> None:
        """Report that the service is not ready; stop accepting after ``drain_delay`` seconds."""
        self._service.announce_end()
        delay = self._service.options.drain_delay
        if delay <= 0:
            self.should_exit = True
            return
        timer = threading.Timer(delay, self._end)
        timer.daemon = True
        timer.start()

    def _end(self) -> None:
        self.should_exit = True

    async def on_tick(self, counter: int) -> bool:
        """End the connections of slow clients, once a second."""
        if counter % round(1 / TICK_SECONDS) == 0:
            end_late(self.server_state.connections)
        return await super().on_tick(counter)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Close the socket, and drain the service while connections finish."""
        for server in self.servers:
            server.close()
        for sock in sockets or []:
            sock.close()
        self._service.announce_end()
        await self._pause(CLOSE_SECONDS)
        stopping = asyncio.ensure_future(self._service.stop())
        closing = asyncio.ensure_future(super().shutdown())
        while not stopping.done():
            if self.force_exit:
                self._service.abandon()
            await asyncio.wait((stopping,), timeout=TICK_SECONDS)
        await asyncio.wait((closing,), timeout=WRITE_SECONDS)
        self.answered = not self.server_state.tasks
        # Clients that do not read their answer are given up.
        for task in list(self.server_state.tasks):
            task.cancel()
        self.force_exit = True
        await closing

    async def _pause(self, seconds: float) -> None:
        until = time.monotonic() + seconds
        while self.server_state.connections and time.monotonic() < until and not self.force_exit:
            await asyncio.sleep(TICK_SECONDS / 2)


def _config(service: Service, app: App | Any, *, http: Http, **address: Any) -> uvicorn.Config:
    return uvicorn.Config(
        app,
        http=connection_class(service.signals, http),
        ws="none",
        lifespan="on",
        log_config=None,
        access_log=False,
        proxy_headers=False,
        server_header=False,
        timeout_keep_alive=IDLE_SECONDS,
        # The service ends within drain_timeout by itself, and the server soon after it.
        timeout_graceful_shutdown=None,
        h11_max_incomplete_event_size=HEADER_BYTES,
        **address,
    )


class Server:
    """Serves a service over HTTP in a thread, until the ``with`` block ends.

    ::

        with Server(service, port=0) as server:
            requests.post(f"{server.url}/embed", json={"inputs": "a text"})

    port: 0 chooses a free one.
    app: keyword arguments of :func:`asgi_app`.

    Raises :class:`ServiceError` for an address that cannot be used.
    """

    def __init__(
        self, service: Service, *, host: str = "127.0.0.1", port: int = 0, **app: Any
    ) -> None:
        self.service = service
        self._sockets = _bind(host, port)
        self.host, self.port = host, int(self._sockets[0].getsockname()[1])
        self._app = asgi_app(service, **app)
        config = _config(service, self._app, http="auto")
        self._server = _Uvicorn(config, service)
        self._thread = threading.Thread(target=self._run, name="server", daemon=True)

    @property
    def url(self) -> str:
        """The URL of the server."""
        return _address((self.host, self.port))

    def start(self) -> None:
        """Start the thread, and return when the service is ready. Raises :class:`ServiceError`."""
        self._thread.start()
        until = time.monotonic() + START_SECONDS
        while not self._server.started:
            if not self._thread.is_alive() or time.monotonic() > until:
                self._server.should_exit = True
                self._thread.join(WRITE_SECONDS)
                self._close()
                reason = _start_error(self._app)
                raise ServiceError(f"the server did not start: {reason}") from reason
            time.sleep(0.005)

    def drain(self) -> None:
        """Stop accepting, compute the waiting requests, and end the thread.

        Raises :class:`ServiceError` if requests were lost, or if the thread does not end.
        """
        self._server.drain()
        options = self.service.options
        # A drain_timeout of infinity: as long as it takes.
        most = options.drain_delay + options.drain_timeout + 4 * WRITE_SECONDS
        self._thread.join(None if most > threading.TIMEOUT_MAX else most)
        self._close()
        if self._thread.is_alive():
            raise ServiceError(f"the server did not end within {most:g} seconds")
        if not (self.service.drained and self._server.answered):
            raise ServiceError(
                f"requests were not computed within {options.drain_timeout:g} seconds; they were "
                "answered with 503"
            )

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self,
        _kind: type[BaseException] | None,
        error: BaseException | None,
        _trace: TracebackType | None,
    ) -> None:
        try:
            self.drain()
        except ServiceError:
            # The error of the block is the first one, and says more.
            if error is None:
                raise

    def _close(self) -> None:
        for sock in self._sockets:
            sock.close()

    def _run(self) -> None:
        try:
            self._server.run(sockets=self._sockets)
        except SystemExit:
            # uvicorn ends the process where the service does not start; start() raises instead.
            return


class _Process(_Uvicorn):
    """The server of the ``serve`` process; ``ready`` is called when it accepts requests."""

    ready: Callable[[str], None] | None = None
    notifier = Notifier(None)

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Start to serve, and exclude the objects made so far from garbage collections."""
        await super().startup(sockets)
        # A full collection over the model's objects would stop all requests for 89 ms.
        gc.collect()
        gc.freeze()
        if self.ready is not None:
            self.ready(_address(self.servers[0].sockets[0].getsockname()))
        self.notifier.ready(lambda: self._service.stall_reason() is None)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Notify systemd and drain, while the watchdog is still pinged."""
        self.notifier.stopping()
        await super().shutdown(sockets)
        self.notifier.close()


def run_server(
    service: Service,
    *,
    host: str,
    port: int,
    unix_socket: str | None = None,
    http: Http = "auto",
    ready: Callable[[str], None] | None = None,
    **app: Any,
) -> int:
    """Serve in this process until a signal; return the exit status: 0 drained, 1 failed.

    unix_socket: the path of a socket to listen at instead of ``host`` and ``port``.
    http: the parser of requests; see :func:`connection_class`.
    ready: called with the address when requests are accepted.
    app: keyword arguments of :func:`asgi_app`.

    A server fails if it does not start, or does not answer every request that it accepted. Raises
    :class:`ServiceError` for an address that cannot be used.
    """
    sockets = None if unix_socket else _bind(host, port)
    application = asgi_app(service, **app)
    address = {"uds": unix_socket} if unix_socket else {}
    config = _config(service, application, http=http, **address)
    server = _Process(config, service)
    server.ready, server.notifier = ready, Notifier.from_environment()
    sys.setswitchinterval(SWITCH_SECONDS)
    for sig in (signal.SIGTERM, signal.SIGINT):
        signal.signal(sig, server.handle_exit)
    try:
        server.run(sockets=sockets)
    except SystemExit:
        LOGGER.error("the server did not start: %s", _start_error(application))
        return 1
    if not server.started:
        return 1
    lost = service.signals.rejected["drain_timeout"]
    if not (service.drained and server.answered):
        LOGGER.error("%d requests were not computed before the end, and answered with 503", lost)
        return 1
    return 0


def _bind(host: str, port: int) -> list[socket.socket]:
    """Bind a socket to host and port; return it with duplicates, for several listeners of uvicorn.

    Raises :class:`ServiceError`.
    """
    sockets: list[socket.socket] = []
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        family, kind, protocol, _, address = found[0]
        bound = socket.socket(family, kind, protocol)
        sockets.append(bound)
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        bound.bind(address)
        bound.setblocking(False)
        while len(sockets) < NUM_LISTENERS:
            sockets.append(bound.dup())
    except OSError as error:
        for sock in sockets:
            sock.close()
        what = "choose another port, or port 0 for a free one"
        if error.errno in (errno.EMFILE, errno.ENFILE):
            what = "allow more open files"
        raise ServiceError(
            f"cannot listen at {host}, port {port}: {error.strerror}; {what}"
        ) from None
    return sockets


def _address(name: Any) -> str:
    """Return the URL of a socket's address, or the path of a Unix socket."""
    if not isinstance(name, tuple):
        return str(name)
    host = f"[{name[0]}]" if ":" in name[0] else name[0]
    return f"http://{host}:{name[1]}"


def _start_error(app: Any) -> Exception:
    """Return the exception that says why a service did not start."""
    # Where CORS is allowed, its middleware wraps the application.
    inner = app if isinstance(app, App) else getattr(app, "app", None)
    error = inner.start_error if isinstance(inner, App) else None
    return error or ServiceError("the log of uvicorn has the reason")
