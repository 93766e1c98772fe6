"""A full queue refuses requests unread, and what needs no lane is still answered."""

from __future__ import annotations

import asyncio
import gc
import json
import re
from collections import Counter
from typing import TYPE_CHECKING, Any

import httpx
import pytest

from encoder_engine.errors import DrainingError, InputError, OverloadedError, RequestSizeError
from encoder_engine.serving.admission import FULL_SHARE
from encoder_engine.serving.http.app import asgi_app
from encoder_engine.serving.http.guard import BodyReader, Limits
from encoder_engine.serving.models import ServedModel
from encoder_engine.serving.options import ServingOptions
from encoder_engine.serving.request import Answer
from encoder_engine.serving.server import Server
from encoder_engine.serving.service import Service

if TYPE_CHECKING:
    from encoder_engine.embedding import Embedder
    from tests.serving.conftest import Gate

LIMIT, JSON = 120, "application/json"
OPTIONS = ServingOptions(max_queue_tokens=LIMIT, drain_timeout=2.0)


async def fill(service: Service, gate: Gate) -> list[asyncio.Task[Any]]:
    """Let one request be computed, and the queue be full of others."""
    gate.close()
    tasks = [asyncio.create_task(service.embed(["the row"]))]
    while not gate.num_texts:
        await asyncio.sleep(0.01)
    for number in range(LIMIT):
        if service.dispatcher.scheduler.num_tokens >= FULL_SHARE * LIMIT:
            break
        tasks.append(asyncio.create_task(service.embed(["the"], client=number)))
        # Texts are tokenized after the pass of the loop in which they arrive.
        await asyncio.sleep(0.001)
    return tasks


def scope_of(path: str, size: int) -> dict[str, Any]:
    headers = {
        b"host": b"localhost",
        b"content-type": b"application/json",
        b"content-length": b"%d" % size,
    }
    return {"type": "http", "method": "POST", "path": path, "headers": [*headers.items()]}


def receiver(body: bytes, gone: asyncio.Event | None = None) -> Any:
    """Return an ASGI server's ``receive``: a body, and the end of the connection at the event."""
    messages = [{"type": "http.request", "body": body}]

    async def receive() -> dict[str, Any]:
        if messages:
            return messages.pop()
        await (asyncio.Event() if gone is None else gone).wait()
        return {"type": "http.disconnect"}

    return receive


async def test_a_full_queue_refuses_requests_unread(
    tiny: Embedder, gate: Gate, monkeypatch: pytest.MonkeyPatch
) -> None:
    body = json.dumps({"inputs": "the row"}).encode()
    read, sent = [0], list[Any]()

    async def receive() -> dict[str, Any]:
        read[0] += 1
        if read[0] > 1:
            await asyncio.Event().wait()
        return {"type": "http.request", "body": body}

    async def send(message: Any) -> None:
        sent.append(message)

    async with Service({"tiny": tiny}, OPTIONS) as service:
        app = asgi_app(service)
        tasks = await fill(service, gate)
        monkeypatch.setattr(ServedModel, "prepare", None)
        before = service.signals.rejected["overloaded"]
        for path in ("/embed", "/v1/embeddings", "/", "/rerank"):
            await app(scope_of(path, len(body)), receive, send)
            assert sent[-2]["status"] == 429
            assert b"retry-after" in dict(sent[-2]["headers"])
        assert read == [0]
        assert service.signals.rejected["overloaded"] == before + 4
        assert sum(service.signals.refusal_seconds.counts) == 4
        with pytest.raises(OverloadedError, match="the limit is 120"):
            await service.embed(["the"])
        await app(scope_of("/tokenize", len(body)), receive, send)
        assert (sent[-2]["status"], read[0] > 0) == (200, True)
        gate.open()
        await asyncio.gather(*tasks)
    with pytest.raises(DrainingError):
        service.admission.check_queue(None)


def slow_down(service: Service, seconds: float) -> None:
    """Let the estimate say that 1,000 tokens take so many seconds."""
    rate = service.dispatcher.rates["tiny"]
    rate.reset()
    rate.observe(1000.0, seconds)


@pytest.mark.parametrize("most", [None, 2000])
async def test_one_client_locks_nobody_out(tiny: Embedder, gate: Gate, most: int | None) -> None:
    """Beside a request of nine seconds, every other client got 429 for ten."""
    options = ServingOptions(max_queue_tokens=most, batch_ms=100.0)
    async with Service({"tiny": tiny}, options) as service:
        slow_down(service, 10.0)
        gate.close()
        gate.num_texts = 0
        calls = [
            asyncio.create_task(service.embed(["the row"] * 200, client=client))
            for client in ("large", "large", "larger", "largest")
        ]
        while not gate.num_texts:
            await asyncio.sleep(0.01)
        first, waiting = gate.num_texts, service.dispatcher.scheduler
        calls += [asyncio.create_task(service.embed(["the"], client=n)) for n in range(20)]
        while waiting.num_texts < 420 - first:
            assert not any(call.done() for call in calls[4:])
            await asyncio.sleep(0.01)
        gate.open()
        answers = await asyncio.gather(*calls, return_exceptions=True)
    assert all(isinstance(answer, Answer) for answer in answers[4:])
    large = [isinstance(answer, Answer) for answer in answers[:4]]
    # The clients' own second requests, and others as large, come in time or are refused.
    assert large[0]
    assert not all(large)


@pytest.mark.parametrize("most", [None, 400])
async def test_a_request_that_alone_exceeds_the_limit_is_told_what_fits(
    tiny: Embedder, gate: Gate, most: int | None
) -> None:
    async with Service({"tiny": tiny}, ServingOptions(max_queue_tokens=most)) as service:
        slow_down(service, 25.0)
        texts = ["the row"] * 200
        with pytest.raises(RequestSizeError, match=r"send at most \d+ of its 200") as raised:
            await service.embed(texts)
        advice = re.search(r"send at most (\d+) of", str(raised.value))
        assert advice is not None
        fit = int(advice[1])
        assert fit < 200
        with pytest.raises(RequestSizeError):
            await service.embed(texts[: fit + 1])
        assert len((await service.embed(texts[:fit])).results) == fit
        sent = list[Any]()

        async def send(message: Any) -> None:
            sent.append(message)

        slow_down(service, 25.0)
        body = json.dumps({"inputs": texts}).encode()
        await asgi_app(service)(scope_of("/embed", len(body)), receiver(body), send)
        assert sent[0]["status"] == 413
        assert b"send at most %d of" % fit in sent[1]["body"]
        assert service.admission.num_calls == 0
    assert gate.num_texts > 0


async def test_200_clients_get_every_answer(tiny: Embedder) -> None:
    """Each sends three requests, one after the other, beside a client of 2,048 texts."""
    async with Service({"tiny": tiny}) as service:

        async def ask(client: int) -> int:
            return sum(
                [
                    len((await service.embed(["the row", "a text"], client=client)).results)
                    for _ in range(3)
                ]
            )

        large = asyncio.create_task(service.embed(["the row"] * 2048, client="large"))
        assert set(await asyncio.gather(*map(ask, range(200)))) == {6}
        assert len((await large).results) == 2048


async def test_a_service_takes_so_many_requests_and_no_more(tiny: Embedder, gate: Gate) -> None:
    read, sent = [0], list[Any]()

    async def receive() -> dict[str, Any]:
        read[0] += 1
        return {"type": "http.request", "body": b""}

    async def send(message: Any) -> None:
        sent.append(message)

    async with Service({"tiny": tiny}, ServingOptions(max_requests=5)) as service:
        gate.close()
        calls = [asyncio.create_task(service.embed(["the"])) for _ in range(9)]
        await asyncio.sleep(0.05)
        assert service.admission.num_calls == 5
        # Exactly the limit waits: another request is refused unread, and may try again here.
        await asgi_app(service)(scope_of("/embed", 2), receive, send)
        headers = dict(sent[0]["headers"])
        assert (sent[0]["status"], read) == (429, [0])
        assert b"retry-after" in headers
        assert b"connection" not in headers
        gate.open()
        answers = await asyncio.gather(*calls, return_exceptions=True)
    refused = [answer for answer in answers if isinstance(answer, OverloadedError)]
    assert len(refused) == 4
    assert all("the limit is 5" in str(error) for error in refused)


async def test_a_client_s_address_may_be_a_list(tiny: Embedder) -> None:
    body, statuses = b'{"inputs": "the row"}', list[int]()

    async def send(message: Any) -> None:
        if "status" in message:
            statuses.append(message["status"])

    async with Service({"tiny": tiny}) as service:
        scope = scope_of("/embed", len(body))
        for client in (["127.0.0.1", 5000], ("127.0.0.1", 5000), None):
            await asgi_app(service)(scope | {"client": client}, receiver(body), send)
        clients: Any = [["a"], {}]
        for client in clients:
            with pytest.raises(InputError, match="client must be hashable"):
                await service.embed(["the"], client=client)
        assert service.admission.num_calls == 0
    assert service.drained
    assert statuses == [200, 200, 200]


def test_requests_leave_nothing_to_the_garbage_collector(tiny: Embedder) -> None:
    """A full collection beside 2,000 waiting requests stopped all of them for 100 ms and more."""
    with Server(Service({"tiny": tiny})) as server, httpx.Client(base_url=server.url) as client:
        client.post("/embed", json={"inputs": "the row"})
        gc.collect()
        gc.disable()
        try:
            for path, content in (("/embed", b'{"inputs": "the"}'), ("/embed", b"{"), ("/a", b"")):
                for _ in range(20):
                    client.post(path, content=content, headers={"content-type": JSON})
            kinds = Counter(type(one).__name__ for one in gc.get_objects())
        finally:
            gc.enable()
    # uvicorn keeps the last request of the connection.
    assert kinds["RequestResponseCycle"] <= 1


def test_failed_requests_leave_nothing_to_the_garbage_collector(
    tiny: Embedder, gate: Gate, monkeypatch: pytest.MonkeyPatch
) -> None:
    statuses, times = Counter[int](), 5

    def fail(*_: object) -> Any:
        raise RuntimeError("broken")

    async def ask(
        app: Any, inputs: Any, *, gone: asyncio.Event | None = None, timeout_ms: int = 10_000
    ) -> None:
        body = json.dumps({"inputs": inputs}).encode()
        scope = scope_of("/embed", len(body))
        scope["headers"].append((b"x-request-timeout-ms", b"%d" % timeout_ms))

        async def send(message: Any) -> None:
            if "status" in message:
                statuses[message["status"]] += 1

        await app(scope, receiver(body, gone), send)

    def kept() -> Counter[str]:
        counts = Counter(type(one).__name__ for one in gc.get_objects())
        names = ("Request", "OverloadedError", "DeadlineError", "SequenceLengthError")
        return Counter({name: counts[name] for name in (*names, "CancelledError", "RuntimeError")})

    async def run() -> None:
        options = ServingOptions(max_queue_tokens=LIMIT, truncation="refuse")
        gc.collect()
        first = kept()
        async with Service({"tiny": tiny}, options) as service:
            service.dispatcher.rates["tiny"].reset()
            service.dispatcher.rates["tiny"].observe(1000.0, 0.001)
            app, left = asgi_app(service), asyncio.Event()
            gate.close()
            gate.num_texts = 0
            tasks = [asyncio.create_task(service.embed(["the row"]))]
            while not gate.num_texts:
                await asyncio.sleep(0.01)
            tasks.append(asyncio.create_task(service.embed(["the row"])))
            await asyncio.sleep(0.01)
            gc.collect()
            before = kept()
            for _ in range(times):
                await ask(app, "the " * 9000)
                await ask(app, ["the"] * LIMIT)
                await ask(app, "the", timeout_ms=200)
                leaving = asyncio.create_task(ask(app, "the", gone=left))
                await asyncio.sleep(0.01)
                left.set()
                await leaving
                left.clear()
            del leaving
            assert kept() == before
            gate.open()
            await asyncio.gather(*tasks)
            tasks.clear()
            monkeypatch.setattr(ServedModel, "compute", fail)
            for _ in range(times):
                await ask(app, "the")
            # The lane's thread lets the last batch go soon.
            for _ in range(500):
                if kept() <= first:
                    break
                await asyncio.sleep(0.01)
            assert kept() <= first

    gc.disable()
    try:
        asyncio.run(run())
    finally:
        gc.enable()
    # A request that reached the queue late, on a busy machine, was refused by 429 instead of 504.
    assert statuses[422] == statuses[424] == times
    # More tokens than the limit alone.
    assert statuses[413] == times
    assert statuses[429] + statuses[504] == times
    assert statuses[504] > 0


async def test_a_body_whose_request_is_cancelled_as_room_comes_free_keeps_no_room() -> None:
    reader = BodyReader(Limits(max_body_bytes=100, max_bodies_bytes=100))

    async def read() -> bytes:
        reserved = await reader.reserve({b"content-length": b"100"})
        try:
            return await reader.read(receiver(b"x" * 100))
        finally:
            reader.release(reserved)

    first = await reader.reserve({b"content-length": b"100"})
    cancelled, next_one = asyncio.create_task(read()), asyncio.create_task(read())
    await asyncio.sleep(0)
    # The cancelled request runs only in the next pass of the loop.
    cancelled.cancel()
    reader.release(first)
    with pytest.raises(asyncio.CancelledError):
        await cancelled
    assert len(await next_one) == 100
    assert len(await asyncio.wait_for(read(), 5.0)) == 100
