"""Runs a service behind uvicorn: in a thread of its own, or as the process of ``serve``.

Ends without losing what it accepted: on SIGTERM it first says that it is not ready, after
``drain_delay`` closes the socket, computes what waits within ``drain_timeout``, and exits. A second
signal ends it at once.
"""

from __future__ import annotations

import asyncio
import gc
import signal
import socket
import sys
import threading
import time
from typing import TYPE_CHECKING, Any, Literal, Self

import uvicorn

from encoder_engine.errors import ServiceError
from encoder_engine.serving.http.app import asgi_app

if TYPE_CHECKING:
    from types import FrameType, TracebackType

    from encoder_engine.serving.service import Service

__all__ = ["Server", "run_server"]

# A busy engine thread hands the interpreter over after this time; by default 5 ms, which makes the
# event loop's 99th percentile 15 ms instead of 3.3.
SWITCH_SECONDS = 1e-4
# Above the idle time of proxies, which otherwise send requests into closing connections.
IDLE_SECONDS = 75
START_SECONDS = 120.0


class _Uvicorn(uvicorn.Server):
    """A server that drains before it ends."""

    def __init__(self, config: uvicorn.Config, service: Service) -> None:
        super().__init__(config)
        self._service = service
        self._signalled = False

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """Begin to drain at the first signal; end at once at the second."""
        if self._signalled:
            self.force_exit = True
            self.should_exit = True
            return
        self._signalled = True
        self.drain()
        del sig, frame

    def drain(self) -> None:
        """Say that the service is not ready; stop accepting after ``drain_delay`` seconds."""
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


def _config(
    service: Service,
    app_options: dict[str, Any],
    *,
    http: Literal["auto", "h11", "httptools"],
    max_connections: int,
    **address: Any,
) -> uvicorn.Config:
    return uvicorn.Config(
        asgi_app(service, **app_options),
        http=http,
        lifespan="on",
        log_config=None,
        access_log=False,
        server_header=False,
        timeout_keep_alive=IDLE_SECONDS,
        timeout_graceful_shutdown=int(service.options.drain_timeout) + 1,
        limit_concurrency=max_connections,
        h11_max_incomplete_event_size=16_384,
        **address,
    )


class Server:
    """Serves in a thread until the end of its block.

    ::

        with Server(service, port=0) as server:
            requests.post(f"{server.url}/embed", json={"inputs": "a text"})

    port: 0: a free one. app: the keywords of :func:`asgi_app`.
    """

    def __init__(
        self, service: Service, *, host: str = "127.0.0.1", port: int = 0, **app: Any
    ) -> None:
        self.service = service
        self._socket = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET)
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self._socket.bind((host, port))
        self.host, self.port = host, int(self._socket.getsockname()[1])
        config = _config(service, app, http="auto", max_connections=4096)
        self._server = _Uvicorn(config, service)
        self._thread = threading.Thread(target=self._run, name="server", daemon=True)

    @property
    def url(self) -> str:
        """The address of the server."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"http://{host}:{self.port}"

    def start(self) -> None:
        """Start, and return when the service is ready. Raises :class:`ServiceError`."""
        self._thread.start()
        until = time.monotonic() + START_SECONDS
        while not self._server.started:
            if not self._thread.is_alive() or time.monotonic() > until:
                raise ServiceError("the server did not start; the log of uvicorn has the reason")
            time.sleep(0.005)

    def drain(self) -> None:
        """Stop accepting, compute what waits, and end the thread."""
        self._server.drain()
        self._thread.join(self.service.options.drain_timeout + 5.0)
        self._socket.close()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self,
        _kind: type[BaseException] | None,
        _error: BaseException | None,
        _trace: TracebackType | None,
    ) -> None:
        self.drain()

    def _run(self) -> None:
        asyncio.run(self._server.serve(sockets=[self._socket]))


def run_server(
    service: Service,
    *,
    host: str,
    port: int,
    unix_socket: str | None = None,
    http: Literal["auto", "h11", "httptools"] = "auto",
    max_connections: int = 4096,
    **app: Any,
) -> int:
    """Serve in this process until a signal; return the exit code: 0 drained, 1 failed."""
    address = {"uds": unix_socket} if unix_socket else {"host": host, "port": port}
    config = _config(service, app, http=http, max_connections=max_connections, **address)
    server = _Uvicorn(config, service)
    sys.setswitchinterval(SWITCH_SECONDS)
    # A full collection over the model's objects would stop all requests for 89 ms.
    gc.collect()
    gc.freeze()
    for sig in (signal.SIGTERM, signal.SIGINT):
        signal.signal(sig, server.handle_exit)
    server.run()
    return 0 if server.started and service.drained else 1
