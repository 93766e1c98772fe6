"""The end of a request is unambiguous: what a proxy could read differently is refused."""

from __future__ import annotations

import json
import re
import socket
import time
from typing import TYPE_CHECKING

import httpx
import pytest

from encoder_engine.serving.http.guard import Limits
from encoder_engine.serving.server import Server
from encoder_engine.serving.service import Service

if TYPE_CHECKING:
    from collections.abc import Iterator

    from encoder_engine.embedding import Embedder

pytestmark = pytest.mark.slow
BODY = json.dumps({"inputs": "the row"}).encode()
SIZE = b"content-length: %d" % len(BODY)
CHUNKED = b"transfer-encoding: chunked"
CHUNKS = b"%x\r\n%b\r\n0\r\n\r\n" % (len(BODY), BODY)
# The request that a smuggler hides behind another one.
HIDDEN = b"GET /health HTTP/1.1\r\nhost: localhost\r\n\r\n"


def post(*lines: bytes) -> bytes:
    """Return the head of a request with these headers."""
    fixed = (b"host: localhost", b"content-type: application/json")
    return b"\r\n".join((b"POST /embed HTTP/1.1", *fixed, *lines, b"", b""))


@pytest.fixture(scope="module")
def server(tiny: Embedder) -> Iterator[Server]:
    with Server(Service({"tiny": tiny}), limits=Limits(body_timeout=5.0)) as found:
        yield found


def statuses(server: Server, *sent: bytes) -> tuple[list[bytes], bool]:
    """Send bytes; return the statuses of all answers, and whether the server ended the connection.

    After the first answer, a connection that stays open is asked for one more, of a path that
    nobody else asks for.
    """
    received, closed, asked = bytearray(), False, False
    with socket.create_connection((server.host, server.port), timeout=10.0) as connection:
        try:
            for piece in sent:
                connection.sendall(piece)
                if len(sent) > 1:
                    time.sleep(0.05)
            while b"x-request-id: last" not in received and not closed:
                part = connection.recv(65_536)
                received += part
                closed = not part
                if b"HTTP/1.1 " in received and not asked:
                    asked = True
                    connection.sendall(
                        b"GET /last HTTP/1.1\r\nhost: localhost\r\nx-request-id: last\r\n\r\n"
                    )
        except ConnectionError:
            closed = True
    found = re.findall(rb"HTTP/1\.1 (\d{3}) ", received)
    return (found if closed else found[:-1]), closed


@pytest.mark.parametrize(
    "sent",
    [
        post(SIZE, CHUNKED) + CHUNKS,
        post(CHUNKED, SIZE) + BODY,
        post(SIZE, SIZE) + BODY,
        post(SIZE, b"content-length: 3") + BODY,
        post(b"transfer-encoding: identity", SIZE) + BODY,
        post(b"transfer-encoding: xchunked") + CHUNKS,
        post(b"transfer-encoding: chunked, identity") + CHUNKS,
        post(CHUNKED, b"transfer-encoding: identity") + CHUNKS,
        post(b"transfer-encoding: \x0bchunked") + CHUNKS,
        post(b"transfer-encoding:\r\n chunked") + CHUNKS,
        post(b"transfer-encoding : chunked") + CHUNKS,
        post(b"transfer-encoding: chunked\x00") + CHUNKS,
        post(b" transfer-encoding: chunked") + CHUNKS,
        *(post(b"content-length: " + value) + BODY for value in (
            b"", b"+20", b"-1", b"0x14", b"20, 20", b"2 0", b"9" * 20,
        )),
        post(CHUNKED) + CHUNKS.replace(b"\r\n", b"\n", 1),
        post(CHUNKED) + b"0x" + CHUNKS,
        post(CHUNKED) + b"-1\r\n" + BODY,
        post(CHUNKED) + b"1000000000000000" + CHUNKS,
        post(CHUNKED) + CHUNKS.replace(b"}\r\n", b"}XX"),
        post(CHUNKED) + CHUNKS.replace(b"0\r\n\r\n", b"0\r\ncontent-length: 40\r\n\r\n"),
        (post(SIZE) + BODY).replace(b"\r\n", b"\n"),
        (post(SIZE) + BODY).replace(b"localhost\r\n", b"localhost\r"),
        post(b"x: a\x00b", SIZE) + BODY,
        b"CONNECT localhost:80 HTTP/1.1\r\nhost: localhost\r\n\r\n",
    ],
)  # fmt: skip
def test_an_ambiguous_request_is_refused_and_nothing_after_it_is_read(
    server: Server, sent: bytes
) -> None:
    assert statuses(server, sent + HIDDEN) == ([b"400"], True)


@pytest.mark.parametrize(
    ("sent", "expected"),
    [
        (post(SIZE) + BODY, [b"200"]),
        (post(CHUNKED) + CHUNKS, [b"200"]),
        # A chunk's extension is no size.
        (post(CHUNKED) + CHUNKS.replace(b"\r\n", b";a=b\r\n", 1), [b"200"]),
        (post(b"content_length: 5", SIZE) + BODY, [b"200"]),
        (post(b"transfer-encoding: gzip, chunked") + CHUNKS, [b"415"]),
        (post(b"host: evil.example", SIZE) + BODY, [b"403"]),
        # A body that its route does not read is no request.
        (HIDDEN.replace(b"\r\n\r\n", b"\r\ncontent-length: 38\r\n\r\n") + HIDDEN[:38], [b"200"]),
    ],
)
def test_a_clear_request_is_answered_once(
    server: Server, sent: bytes, expected: list[bytes]
) -> None:
    assert statuses(server, sent) == (expected, False)
    assert statuses(server, sent + HIDDEN) == (expected, True)


@pytest.mark.parametrize(
    "wrong",
    [
        b"\x00nothing\r\n\r\n",
        post(SIZE, SIZE) + BODY,
        post(CHUNKED) + b"zz\r\n",
        b"GET /health HTTP/1.1\r\nhost: a\r\nx: " + b"a" * 20_000 + b"\r\n\r\n",
    ],
    ids=["nothing", "head", "body", "long"],
)
def test_a_whole_request_is_answered_before_the_connection_ends_for_what_follows(
    server: Server, wrong: bytes
) -> None:
    """Uvicorn wrote 400 first, in the place of the first request's answer."""
    assert statuses(server, post(SIZE) + BODY + wrong) == ([b"200"], True)


@pytest.mark.parametrize("size", [SIZE, CHUNKED], ids=["sized", "chunked"])
def test_a_request_that_asks_for_another_protocol_is_answered_by_http_1(
    server: Server, size: bytes
) -> None:
    """Java's client asks for h2c; the body and the next request were skipped."""
    body = BODY if size is SIZE else CHUNKS
    wish = (b"Connection: Upgrade, HTTP2-Settings", b"HTTP2-Settings: AAEA", b"Upgrade: h2c")
    head = post(size, *wish)
    assert statuses(server, head + body) == ([b"200"], False)
    assert statuses(server, head, body) == ([b"200"], False)
    assert statuses(server, head[:70], head[70:] + body[:4], body[4:]) == ([b"200"], False)


def test_too_many_connections_are_refused_with_the_time_to_come_again(tiny: Embedder) -> None:
    """Uvicorn answered health checks with 503 too, which ends a pod that only has much to do."""
    service = Service({"tiny": tiny})
    with Server(service, limits=Limits(max_connections=3)) as server:
        address = (server.host, server.port)
        idle = [socket.create_connection(address, timeout=10.0) for _ in range(3)]
        while service.signals.connections < 3:
            time.sleep(0.01)
        refused = httpx.post(f"{server.url}/v1/embeddings", json={"input": "a"})
        assert (refused.status_code, refused.headers["retry-after"]) == (429, "1")
        assert refused.headers["connection"] == "close"
        assert httpx.get(f"{server.url}/health").status_code == 200
        for connection in idle:
            connection.close()
        while service.signals.connections:
            time.sleep(0.01)
        assert httpx.post(f"{server.url}/embed", json={"inputs": "a"}).status_code == 200
    assert service.signals.rejected["connections"] == 1
