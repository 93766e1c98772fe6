"""Broken, slow and hostile connections cost the server nothing that others need."""

from __future__ import annotations

import json
import random
import socket
import time
from collections import deque
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from http.client import HTTPResponse
from typing import TYPE_CHECKING, Any

import httpx
import pytest

from encoder_engine.serving import server as serving_server
from encoder_engine.serving.http import connection as http_connection
from encoder_engine.serving.http.guard import Limits
from encoder_engine.serving.server import Server
from encoder_engine.serving.service import Service

if TYPE_CHECKING:
    from collections.abc import Iterator

    from encoder_engine.embedding import Embedder
    from tests.serving.conftest import Gate

pytestmark = pytest.mark.slow
BODY = json.dumps({"inputs": "the row"}).encode()
HEAD = (
    b"POST /embed HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n"
    b"content-length: %d\r\n\r\n" % len(BODY)
)


@pytest.fixture(scope="module")
def server(tiny: Embedder) -> Iterator[Server]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(http_connection, "HEADER_SECONDS", 0.5)
        patch.setattr(http_connection, "WRITE_SECONDS", 0.5)
        with Server(Service({"tiny": tiny}), limits=Limits(body_timeout=0.5)) as found:
            yield found


def connect(server: Server) -> socket.socket:
    return socket.create_connection((server.host, server.port), timeout=10.0)


def exchange(server: Server, sent: bytes, seconds: float = 10.0) -> bytes:
    """Send bytes, and return all that comes until the server closes, or for so long nothing."""
    with connect(server) as connection:
        connection.sendall(sent)
        connection.settimeout(seconds)
        return drain(connection)


def drain(connection: socket.socket) -> bytes:
    parts = []
    try:
        while part := connection.recv(65_536):
            parts.append(part)
    except (ConnectionError, TimeoutError):
        pass
    return b"".join(parts)


def answer(connection: socket.socket) -> int:
    """Read one whole answer, whose head and body may come apart, and return its status."""
    response = HTTPResponse(connection)
    response.begin()
    response.read()
    return response.status


def works(server: Server) -> bool:
    return (
        httpx.post(
            f"{server.url}/embed", content=BODY, headers={"content-type": "application/json"}
        ).status_code
        == 200
    )


def test_a_request_in_any_two_pieces_is_answered(server: Server) -> None:
    whole = HEAD + BODY
    with connect(server) as connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        reader = connection.makefile("rb")
        for cut in range(1, len(whole)):
            connection.sendall(whole[:cut])
            connection.sendall(whole[cut:])
            assert reader.readline() == b"HTTP/1.1 200 OK\r\n"
            size = 0
            while (line := reader.readline()) != b"\r\n":
                if line.lower().startswith(b"content-length:"):
                    size = int(line.split(b":")[1])
            assert len(json.loads(reader.read(size))[0]) == 16


def test_a_connection_that_ends_at_any_byte_costs_nothing(server: Server) -> None:
    whole = HEAD + BODY
    for cut in range(len(whole)):
        with connect(server) as connection:
            connection.sendall(whole[:cut])
    until = time.monotonic() + 5.0
    while server.service.signals.connections and time.monotonic() < until:
        time.sleep(0.02)
    assert server.service.signals.connections == 0
    assert server.service.admission.num_calls == 0
    assert works(server)


@pytest.mark.parametrize(
    ("head", "status"),
    [
        (b"GET /health HTTP/1.1\r\nhost: a\r\nx: " + b"a" * 20_000 + b"\r\n\r\n", b"431"),
        (b"GET /health HTTP/1.1\r\nhost: a\r\n" + b"x: y\r\n" * 65 + b"\r\n", b"431"),
        (b"GET /" + b"a" * 20_000 + b" HTTP/1.1\r\nhost: a\r\n\r\n", b"431"),
        (
            b"GET /health HTTP/1.1\r\nhost: a\r\n"
            + b"x: y\r\n" * 60
            + b"connection: close\r\n\r\n",
            b"200",
        ),
        (b"GET / HTTP/1.1\r\nhost: a\r\ncontent-length: " + b"9" * 5000 + b"\r\n\r\n", b"400"),
        (HEAD.replace(b"content-length", b"content-length: 1\r\ncontent-length") + BODY, b"400"),
        (
            HEAD.replace(b"content-length", b"transfer-encoding: chunked\r\ncontent-length") + BODY,
            b"400",
        ),
        (HEAD.replace(b"host:", b"transfer-encoding : chunked\r\nhost:") + BODY, b"400"),
        (HEAD.replace(b"POST", b"BREW") + BODY, b"400"),
        (b"\x16\x03\x01\x02\x00\x01\x00", b"400"),
        (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", b"400"),
    ],
)
def test_malformed_heads_are_refused(server: Server, head: bytes, status: bytes) -> None:
    found = exchange(server, head)
    assert found.split(b" ")[1:2] == [status], found[:200]
    assert found.count(b"HTTP/1.1 ") == 1
    assert works(server)


def test_headers_that_never_end_are_refused_while_they_arrive(server: Server) -> None:
    with connect(server) as connection:
        connection.sendall(b"GET /health HTTP/1.1\r\nhost: a\r\nx: ")
        try:
            for _ in range(40):
                connection.sendall(b"a" * 1000)
                time.sleep(0.001)
        except ConnectionError:
            pass
        assert drain(connection)[:12] in (b"HTTP/1.1 431", b"")


def test_headers_within_the_limit_are_taken_however_they_arrive(server: Server) -> None:
    head = HEAD.replace(b"host:", b"x-note: " + b"a" * 9000 + b"\r\nx-more: b\r\nhost:")
    with connect(server) as connection:
        connection.sendall(head[:9200])
        time.sleep(0.05)
        connection.sendall(head[9200:] + BODY)
        assert connection.recv(12) == b"HTTP/1.1 200"


def chunked(trailers: bytes) -> bytes:
    """Return a request in chunks up to its trailers."""
    size = b"content-length: %d" % len(BODY)
    head = HEAD.replace(size, b"transfer-encoding: chunked")
    return head + b"%x\r\n%b\r\n0\r\n" % (len(BODY), BODY) + trailers


def test_trailers_are_no_headers(server: Server) -> None:
    with connect(server) as connection:
        connection.sendall(chunked(b"x-request-id: trailer\r\n\r\n"))
        found = connection.recv(65_536)
    assert found.startswith(b"HTTP/1.1 200")
    assert b"x-request-id: trailer" not in found


def test_trailers_that_never_end_are_refused_while_they_arrive(server: Server) -> None:
    with connect(server) as connection:
        connection.sendall(chunked(b"x: "))
        time.sleep(0.05)
        sent = 0
        try:
            for _ in range(400):
                sent += connection.send(b"a" * 65_536)
        except ConnectionError:
            pass
        assert drain(connection)[:12] in (b"HTTP/1.1 431", b"")
    assert sent < 400 * 65_536
    assert works(server)


def test_slow_headers_and_bodies_end(server: Server) -> None:
    start = time.monotonic()
    with connect(server) as connection:
        connection.sendall(HEAD[:30])
        assert drain(connection) == b""
    with connect(server) as connection:
        connection.sendall(HEAD + BODY[:5])
        assert drain(connection).startswith(b"HTTP/1.1 408")
    # After its answer a client goes on sending a body that nobody reads.
    with connect(server) as connection:
        head = HEAD.replace(b"/embed", b"/nothing").replace(b"length: 21", b"length: 9999999")
        connection.sendall(head)
        assert answer(connection) == 404
        with suppress(ConnectionError):
            for _ in range(4):
                connection.sendall(b" ")
                time.sleep(0.05)
        assert drain(connection) == b""
    assert 1.2 < time.monotonic() - start < 8.0


@pytest.mark.parametrize("http", ["httptools", pytest.param("h11", marks=pytest.mark.exhaustive)])
def test_a_connection_stays_open_when_the_body_follows_the_refusal(
    tiny: Embedder, monkeypatch: pytest.MonkeyPatch, http: Any
) -> None:
    monkeypatch.setattr(http_connection, "HEADER_SECONDS", 1.0)
    monkeypatch.setattr(
        serving_server,
        "connection_class",
        lambda signals, _: http_connection.connection_class(signals, http),
    )
    with Server(Service({"tiny": tiny})) as server, connect(server) as connection:
        connection.sendall(HEAD.replace(b"/embed", b"/nothing"))
        assert answer(connection) == 404
        connection.sendall(BODY)
        # Longer than a head may take, and than the sweep of slow connections after it.
        time.sleep(2.3)
        connection.sendall(HEAD + BODY)
        assert answer(connection) == 200
        connection.sendall(HEAD[:20])
        start = time.monotonic()
        assert drain(connection) == b""
        assert time.monotonic() - start < 5.0


def test_a_client_that_does_not_read_is_dropped(server: Server) -> None:
    body = json.dumps({"inputs": ["the row " * 9] * 2048}).encode()
    head = HEAD.replace(b"/embed", b"/embed_all").replace(
        b"length: %d" % len(BODY), b"length: %d" % len(body)
    )
    before = server.service.signals.cancelled["answer"]
    with connect(server) as connection:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        connection.sendall(head + body)
        until = time.monotonic() + 60.0
        while server.service.signals.cancelled["answer"] == before:
            assert time.monotonic() < until
            assert works(server)
            time.sleep(0.05)
    while server.service.admission.answer_bytes and time.monotonic() < until:
        time.sleep(0.02)
    assert server.service.admission.answer_bytes == 0


@pytest.mark.parametrize(
    "count", [50, pytest.param(1000, marks=pytest.mark.exhaustive)], ids=["some", "many"]
)
def test_what_disconnected_clients_sent_is_not_computed(
    server: Server, gate: Gate, count: int
) -> None:
    before = server.service.signals.cancelled["queue"]
    gate.close()
    with connect(server) as first:
        first.sendall(HEAD + BODY)
        while not gate.num_texts:
            time.sleep(0.01)
        others = [connect(server) for _ in range(count)]
        for connection in others:
            connection.sendall(HEAD + BODY)
        while server.service.admission.num_calls <= count:
            time.sleep(0.01)
        for connection in others:
            connection.close()
        until = time.monotonic() + 5.0
        while server.service.admission.num_calls > 1 and time.monotonic() < until:
            time.sleep(0.01)
        gate.open()
        assert first.recv(12) == b"HTTP/1.1 200"
    assert gate.num_texts == 1
    assert server.service.signals.cancelled["queue"] - before == count


def mutated(draw: random.Random) -> bytes:
    """Return a request with bytes changed, left out, repeated or put in."""
    found = bytearray(HEAD + BODY)
    for _ in range(draw.randint(1, 4)):
        place, kind = draw.randrange(len(found)), draw.randrange(4)
        if kind == 0:
            found[place] = draw.randrange(256)
        elif kind == 1:
            del found[place : place + draw.randint(1, 8)]
        elif kind == 2:
            found[place:place] = found[place : place + draw.randint(1, 40)]
        else:
            piece: Any = draw.choice((b"\r\n", b"\x00", b": ", b"chunked", b"\xff", b"0", b'"'))
            found[place:place] = piece
    return bytes(found)


@pytest.mark.parametrize(
    "count", [400, pytest.param(100_000, marks=pytest.mark.exhaustive)], ids=["some", "many"]
)
def test_no_mutation_of_a_request_fails_the_server(server: Server, count: int) -> None:
    draw = random.Random(11)

    def send(sent: bytes) -> None:
        found = exchange(server, sent, 0.02)
        assert found == b"" or found.startswith(b"HTTP/1.1 "), sent
        assert b"HTTP/1.1 500" not in found, sent

    # Each waits for an answer that may not come.
    with ThreadPoolExecutor(16) as pool:
        for _ in range(0, count, 400):
            deque(pool.map(send, [mutated(draw) for _ in range(400)]), maxlen=0)
    assert works(server)
