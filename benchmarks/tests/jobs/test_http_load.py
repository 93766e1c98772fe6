"""Load is sent when it is due, latency counts from then, and answers are read whole."""

from __future__ import annotations

import asyncio
import socket
import threading
import time
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

from benchmarks.jobs import http_load
from benchmarks.jobs.http_load import Target, arrivals, closed_loop, open_loop, percentile

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pytest

MALFORMED = b"HTTP/1.1 what is this\r\n\r\n"
CHUNKED = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n3\r\nabc\r\n2\r\nde\r\n0\r\n\r\n"
SIZED = b"HTTP/1.1 200 OK\r\ncontent-length: 4\r\n\r\nabcd"
LAST = b"HTTP/1.1 429 Too Many Requests\r\nconnection: close\r\ncontent-length: 0\r\n\r\n"
REFUSED = b"HTTP/1.1 429 Too Many Requests\r\ncontent-length: 0\r\n\r\n"


@contextmanager
def server(answers: list[bytes], stall: float = 0.0) -> Iterator[Target]:
    """Answer requests in turn, the first one after a stall, in two pieces each."""
    listener = socket.create_server(("127.0.0.1", 0))
    number, lock = 0, threading.Lock()

    def talk(connection: socket.socket) -> None:
        nonlocal number
        with connection, suppress(OSError):
            while connection.recv(65_536):
                with lock:
                    answer, first = answers[number % len(answers)], number == 0
                    number += 1
                    if first:
                        time.sleep(stall)
                if not answer:
                    return
                connection.sendall(answer[:20])
                time.sleep(0.001)
                connection.sendall(answer[20:])
                if answer == LAST:
                    return

    def accept() -> None:
        while True:
            try:
                connection, _ = listener.accept()
            except OSError:
                return
            threading.Thread(target=talk, args=(connection,), daemon=True).start()

    threading.Thread(target=accept, daemon=True).start()
    port = int(listener.getsockname()[1])
    try:
        yield Target(host="127.0.0.1", port=port, path="/", bodies=(b"{}", b"[]"))
    finally:
        listener.shutdown(socket.SHUT_RDWR)
        listener.close()


def test_a_closed_loop_reads_answers_of_both_forms() -> None:
    with server([CHUNKED, SIZED]) as target:
        found = closed_loop(target, connections=1, requests=6)
    assert [answer.body for answer in found] == [b"abcde", b"abcd"] * 3
    assert [answer.number for answer in found] == list(range(6))
    assert {answer.status for answer in found} == {200}


def test_an_open_loop_counts_a_stall_for_all_that_were_due() -> None:
    with server([SIZED, SIZED, REFUSED], stall=0.3) as target:
        found = open_loop(target, rate=100.0, seconds=0.5, seed=3)
    assert 25 <= len(found) <= 80
    # A closed loop would have one slow answer; here everything that was due meanwhile is slow.
    assert sum(answer.seconds > 0.1 for answer in found) >= 8
    assert {answer.status for answer in found} == {200, 429}
    assert percentile(found, 0.99) >= 0.25
    assert percentile([], 0.5) == 0.0


def test_what_has_no_answer_is_named_by_its_exception() -> None:
    with server([SIZED, b""]) as target:
        found = closed_loop(target, connections=1, requests=3)
    assert [(one.status, one.failure) for one in found] == [(200, ""), (0, "EOFError"), (200, "")]
    gone = closed_loop(target, connections=2, requests=4)
    assert {(one.status, one.failure) for one in gone} == {(0, "ConnectionRefusedError")}
    assert [one.number for one in gone] == [0, 1, 2, 3]


def test_a_connection_that_its_server_ends_is_not_used_again() -> None:
    with server([LAST]) as target:
        found = open_loop(target, rate=200.0, seconds=0.3, seed=3)
    assert {(one.status, one.failure) for one in found} == {(429, "")}
    assert len(found) >= 20


def test_a_request_without_an_answer_in_time_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_load, "LAST_SECONDS", 0.1)
    with server([SIZED], stall=1.0) as target:
        found = open_loop(target, rate=100.0, seconds=0.1, seed=3)
    assert {(one.status, one.failure) for one in found} == {(0, "TimeoutError")}
    assert len({one.number for one in found}) == len(found) > 0


def test_an_answer_that_is_no_http_is_counted() -> None:
    load = {"rate": 100.0, "seconds": 0.3}
    with server([SIZED, MALFORMED]) as target:
        found = open_loop(target, **load, seed=3)
    assert {(one.status, one.failure) for one in found} == {(200, ""), (0, "ValueError")}
    assert {one.number for one in found} == set(range(len(arrivals(**load, seed=3))))


def test_a_new_connection_is_no_lateness(monkeypatch: pytest.MonkeyPatch) -> None:
    connect = http_load._Client._connect

    async def slow(self: http_load._Client) -> http_load._Connection:
        await asyncio.sleep(0.2)
        return await connect(self)

    monkeypatch.setattr(http_load._Client, "_connect", slow)
    with server([SIZED]) as target:
        (found,) = closed_loop(target, connections=1, requests=1)
    assert found.seconds - found.late_seconds >= 0.2
