"""A client that leaves frees its place, whatever the size of its body and however it was sent."""

from __future__ import annotations

import json
import socket
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from encoder_engine.serving import server as serving_server
from encoder_engine.serving.http.connection import connection_class
from encoder_engine.serving.options import ServingOptions
from encoder_engine.serving.server import Server
from encoder_engine.serving.service import Service

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from encoder_engine.embedding import Embedder
    from tests.serving.conftest import Gate

pytestmark = pytest.mark.slow
NUM_TEXTS = 2000
SIZES = (10_000, 60_000, 280_000, 8_000_000)
LONE = json.dumps({"inputs": "the row"}).encode()


@pytest.fixture(scope="module", params=["httptools", "h11"])
def server(tiny: Embedder, request: pytest.FixtureRequest) -> Iterator[Server]:
    """Serve the tiny model by each implementation of HTTP; a batch takes few texts."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(
            serving_server,
            "connection_class",
            lambda signals, _: connection_class(signals, request.param),
        )
        with Server(Service({"tiny": tiny}, ServingOptions(batch_ms=0.1))) as found:
            yield found


def head(size: int, *lines: bytes) -> bytes:
    fixed = (b"host: localhost", b"content-type: application/json", b"content-length: %d" % size)
    return b"\r\n".join((b"POST /embed HTTP/1.1", *fixed, *lines, b"", b""))


def body_of(size: int) -> bytes:
    count = min(NUM_TEXTS, size // 5)
    return json.dumps({"inputs": ["w" * max(1, size // count - 4)] * count}).encode()


def connect(server: Server) -> socket.socket:
    return socket.create_connection((server.host, server.port), timeout=30.0)


def send_plain(connection: socket.socket, body: bytes) -> None:
    connection.sendall(head(len(body)) + body)


def send_after_100(connection: socket.socket, body: bytes) -> None:
    connection.sendall(head(len(body), b"expect: 100-continue"))
    assert connection.recv(65_536).startswith(b"HTTP/1.1 100")
    connection.sendall(body)


def send_second(connection: socket.socket, body: bytes) -> None:
    connection.sendall(b"GET /health HTTP/1.1\r\nhost: localhost\r\n\r\n")
    assert connection.recv(65_536).startswith(b"HTTP/1.1 200")
    send_plain(connection, body)


def send_twice(connection: socket.socket, body: bytes) -> None:
    connection.sendall((head(len(body)) + body) * 2)


def send_chunks(connection: socket.socket, body: bytes) -> None:
    lines = head(0).replace(b"content-length: 0", b"transfer-encoding: chunked")
    chunks = [body[start : start + 50_000] for start in range(0, len(body), 50_000)]
    framed = (b"%x\r\n%b\r\n" % (len(chunk), chunk) for chunk in chunks)
    connection.sendall(lines + b"".join(framed) + b"0\r\n\r\n")


def wait_for(condition: Callable[[], bool], what: str) -> None:
    until = time.monotonic() + 60.0
    while not condition():
        assert time.monotonic() < until, what
        time.sleep(0.002)


WAYS: tuple[Any, ...] = (send_plain, send_after_100, send_second, send_twice, send_chunks)


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("send", WAYS)
def test_texts_of_a_client_that_left_are_not_computed(
    server: Server, gate: Gate, send: Callable[[socket.socket, bytes], None], size: int
) -> None:
    """From 280 kB on, the connection was not read any more, and everything was computed."""
    calls, scheduler = server.service.admission, server.service.dispatcher.scheduler
    gate.close()
    gate.num_texts = 0
    with connect(server) as first:
        send_plain(first, LONE)
        wait_for(lambda: gate.num_texts == 1, "the first request is not computed")
        with connect(server) as leaving:
            send(leaving, body_of(size))
            wait_for(lambda: scheduler.num_texts > 0, "the large request did not come")
        wait_for(lambda: calls.num_calls == 1, "the client that left still has its place")
        assert scheduler.num_texts == 0
        gate.open()
        assert first.recv(12) == b"HTTP/1.1 200"
    assert gate.num_texts == 1


@pytest.mark.parametrize("size", SIZES)
def test_a_client_that_leaves_while_it_is_computed_costs_one_slice(
    server: Server, gate: Gate, size: int
) -> None:
    body = body_of(size)
    gate.close()
    gate.num_texts = 0
    with connect(server) as leaving:
        send_plain(leaving, body)
        wait_for(lambda: gate.num_texts > 0, "nothing is computed")
    slice_texts = gate.num_texts
    wait_for(lambda: server.service.admission.num_calls == 0, "the client still has its place")
    gate.open()
    with connect(server) as other:
        send_plain(other, LONE)
        assert other.recv(12) == b"HTTP/1.1 200"
    assert slice_texts < len(json.loads(body)["inputs"])
    assert gate.num_texts == slice_texts + 1


@pytest.mark.parametrize("cut", [0, 40, 300])
def test_what_comes_before_the_answer_ends_the_connection_after_it(
    server: Server, gate: Gate, cut: int
) -> None:
    """The answer is that of the first request; the second, whole or in part, is not read."""
    gate.close()
    gate.num_texts = 0
    request = head(len(LONE)) + LONE
    with connect(server) as connection:
        connection.sendall(request + (request + request)[:cut])
        wait_for(lambda: gate.num_texts == 1, "the first request is not computed")
        if not cut:
            connection.sendall(request)
            wait_for(lambda: sent_is_read(connection), "the second request is not read")
        gate.open()
        received = bytearray()
        while part := connection.recv(65_536):
            received += part
    assert received.count(b"HTTP/1.1 200") == 1
    assert gate.num_texts == 1


def sent_is_read(connection: socket.socket) -> bool:
    """Return whether the server's kernel buffer holds nothing that was sent (Linux)."""
    port = b"%04X" % connection.getsockname()[1]
    rows = [line.split() for line in Path("/proc/net/tcp").read_bytes().splitlines()[1:]]
    return all(row[4].endswith(b":00000000") for row in rows if row[2].endswith(port))
