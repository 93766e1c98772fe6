"""A service that ends answers everything that it took, or says that it did not."""

from __future__ import annotations

import asyncio
import errno
import json
import random
import signal
import socket
import subprocess
import sys
import threading
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import httpx
import pytest

from encoder_engine.errors import DrainingError, ServiceError
from encoder_engine.serving.models import ServedModel
from encoder_engine.serving.options import ServingOptions
from encoder_engine.serving.server import Server
from encoder_engine.serving.service import Service

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from encoder_engine.embedding import Embedder
    from tests.serving.conftest import Gate


async def test_what_is_left_after_the_timeout_fails_and_is_counted(
    tiny: Embedder, gate: Gate
) -> None:
    service = Service({"tiny": tiny}, ServingOptions(drain_timeout=0.1))
    await service.start()
    gate.close()
    calls = [asyncio.create_task(service.embed(["the text"])) for _ in range(3)]
    await asyncio.sleep(0.05)
    await service.stop()
    answers: list[Any] = await asyncio.gather(*calls, return_exceptions=True)
    assert all(isinstance(answer, DrainingError) for answer in answers)
    assert not service.drained
    assert service.signals.rejected["drain_timeout"] == 3


async def test_a_request_that_is_tokenized_during_the_end_fails_at_once(
    tiny: Embedder, monkeypatch: pytest.MonkeyPatch
) -> None:
    service = Service({"tiny": tiny}, ServingOptions(drain_timeout=0.1, timeout=30.0))
    await service.start()
    prepare = ServedModel.prepare

    def slow(self: ServedModel, key: Any, texts: Any) -> Any:
        until = time.monotonic() + 30.0
        while not service._abandoned and time.monotonic() < until:
            time.sleep(0.01)
        return prepare(self, key, texts)

    monkeypatch.setattr(ServedModel, "prepare", slow)
    call = asyncio.create_task(service.embed(["the text " * 10_000]))
    await asyncio.sleep(0.05)
    start = time.monotonic()
    await service.stop()
    answers: list[Any] = await asyncio.gather(call, return_exceptions=True)
    answer, seconds = answers[0], time.monotonic() - start
    assert isinstance(answer, DrainingError)
    assert seconds < 5.0


async def test_a_request_that_is_tokenized_as_the_end_begins_is_computed(
    tiny: Embedder, monkeypatch: pytest.MonkeyPatch
) -> None:
    service = Service({"tiny": tiny})
    await service.start()
    prepare, begun = ServedModel.prepare, threading.Event()

    def slow(self: ServedModel, key: Any, texts: Any) -> Any:
        begun.set()
        time.sleep(0.2)
        return prepare(self, key, texts)

    monkeypatch.setattr(ServedModel, "prepare", slow)
    call = asyncio.create_task(service.embed(["the text " * 10_000]))
    await asyncio.to_thread(begun.wait)
    await service.stop()
    answers: list[Any] = await asyncio.gather(call, return_exceptions=True)
    answer = answers[0]
    assert answer.results.shape == (1, 16)
    assert service.drained


async def test_a_service_stops_once_and_may_start_again(tiny: Embedder) -> None:
    service = Service({"tiny": tiny}, ServingOptions(drain_timeout=float("inf")))
    for _ in range(2):
        await service.start()
        await service.embed(["the text"])
        await asyncio.gather(service.stop(), service.stop())
        with pytest.raises(DrainingError):
            await service.embed(["the text"])
    assert service.drained


def test_a_failed_start_leaves_no_thread(tiny: Embedder, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise RuntimeError("no memory")

    monkeypatch.setattr(ServedModel, "compute", fail)
    before = set(threading.enumerate())
    with pytest.raises(RuntimeError, match="no memory"):
        asyncio.run(Service({"tiny": tiny}).start())
    left = set(threading.enumerate()) - before
    for thread in left:
        thread.join(5.0)
    assert not any(thread.is_alive() for thread in left)
    with pytest.raises(ServiceError, match="no memory"), Server(Service({"tiny": tiny})):
        pass


def test_a_server_that_gets_no_sockets_says_why(
    tiny: Embedder, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(_: socket.socket) -> None:
        raise OSError(errno.EMFILE, "Too many open files")

    monkeypatch.setattr(socket.socket, "dup", fail)
    with pytest.raises(ServiceError, match="Too many open files; allow more open files"):
        Server(Service({"tiny": tiny}))


@pytest.mark.slow
def test_a_late_drain_answers_503_and_raises(tiny: Embedder, gate: Gate) -> None:
    service = Service({"tiny": tiny}, ServingOptions(drain_timeout=0.5))
    server = Server(service)
    server.start()
    found: list[httpx.Response] = []

    def ask() -> None:
        found.append(httpx.post(f"{server.url}/v1/embeddings", json={"input": "a"}, timeout=30.0))

    gate.close()
    threads = [threading.Thread(target=ask) for _ in range(4)]
    for thread in threads:
        thread.start()
    while service.admission.num_calls < len(threads):
        time.sleep(0.01)
    with pytest.raises(ServiceError, match=r"not computed within 0\.5 seconds"):
        server.drain()
    for thread in threads:
        thread.join(5.0)
    assert [response.status_code for response in found] == [503] * len(threads)
    assert found[0].json()["error"]["type"] == "service_unavailable_error"
    assert found[0].headers["connection"] == "close"


@contextmanager
def started(directory: Path, seconds: float, drain_timeout: float) -> Iterator[Any]:
    command = [sys.executable, "-m", "tests.serving.slow_server", str(directory)]
    with subprocess.Popen(
        [*command, str(seconds), str(drain_timeout)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        url = process.stdout.readline().strip()
        try:
            yield process, url
        finally:
            process.kill()


@pytest.mark.slow
def test_the_exit_status_says_that_a_request_was_lost(tiny_directory: Path) -> None:
    with started(tiny_directory, 2.0, 0.3) as (process, url):
        found: list[int] = []
        thread = threading.Thread(
            target=lambda: found.append(
                httpx.post(f"{url}/embed", json={"inputs": "a"}, timeout=30.0).status_code
            )
        )
        thread.start()
        assert process.stdout.readline() == "computing\n"
        process.send_signal(signal.SIGTERM)
        _, log = process.communicate(timeout=30)
        thread.join(5.0)
    assert found == [503]
    assert process.returncode == 1
    assert "1 requests were not computed" in log


def load(url: str, stop: threading.Event, statuses: list[int]) -> None:
    """Send requests until the server is gone; a connection that is refused took nothing."""
    with httpx.Client(base_url=url, timeout=30.0) as client:
        while not stop.is_set():
            try:
                answer = client.post("/embed", json={"inputs": ["the text", "a"]})
            except httpx.TransportError:
                return
            statuses.append(answer.status_code)
            if answer.status_code == 200:
                assert len(answer.json()) == 2


@pytest.mark.slow
@pytest.mark.parametrize(
    "times", [2, pytest.param(100, marks=pytest.mark.exhaustive)], ids=["some", "many"]
)
def test_nothing_accepted_is_lost_when_the_server_is_ended_under_load(
    tiny_directory: Path, times: int
) -> None:
    draw = random.Random(5)
    for _ in range(times):
        with started(tiny_directory, 0.02, 20.0) as (process, url):
            stop, statuses = threading.Event(), [list[int]() for _ in range(12)]
            threads = [threading.Thread(target=load, args=(url, stop, own)) for own in statuses]
            for thread in threads:
                thread.start()
            while not any(statuses):
                time.sleep(0.01)
            time.sleep(0.3 * draw.random())
            process.send_signal(signal.SIGTERM)
            _, log = process.communicate(timeout=60)
            stop.set()
            for thread in threads:
                thread.join(10.0)
        lines = [json.loads(line) for line in log.splitlines() if line.startswith("{")]
        logged = [line["status"] for line in lines]
        received = [status for own in statuses for status in own]
        assert process.returncode == 0, log
        assert set(received) <= {200, 503}
        assert received.count(200) > 0
        # Every answer that the server wrote was received, and no client was cut off.
        assert sorted(received) == sorted(logged)
