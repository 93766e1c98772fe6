"""Lanes outlive every exception, speeds come from batches that ended well, and waits are right."""

from __future__ import annotations

import asyncio
import itertools
import random
import threading
import time
from collections import Counter
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from encoder_engine.errors import (
    DeadlineError,
    InputError,
    NonFiniteVectorError,
    OverloadedError,
    ServiceError,
)
from encoder_engine.serving import dispatcher
from encoder_engine.serving.dispatcher import FIRST_COST, Rate
from encoder_engine.serving.models import ServedModel
from encoder_engine.serving.options import ServingOptions
from encoder_engine.serving.request import Answer
from encoder_engine.serving.scheduler import Scheduler, Waiting
from encoder_engine.serving.service import Service

if TYPE_CHECKING:
    from encoder_engine.embedding import Embedder
    from tests.serving.conftest import Gate


async def test_counts_and_speeds_begin_after_the_warm_up(tiny: Embedder) -> None:
    async with Service({"tiny": tiny}) as service:
        assert service.signals.texts == {}
        assert service.signals.batch_texts.total == 0
        assert service.dispatcher.rates["tiny"].known


async def test_a_service_with_narrow_limits_starts(tiny: Embedder) -> None:
    options = ServingOptions(max_queue_bytes=400, max_answer_bytes=300, truncation="refuse")
    async with Service({"tiny": tiny}, options) as service:
        assert (await service.embed(["the text"])).results.shape == (1, 16)


async def test_failed_batches_say_nothing_about_the_speed(
    tiny: Embedder, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> Any:
        time.sleep(0.05)
        raise RuntimeError("broken")

    async with Service({"tiny": tiny}) as service:
        before = service.dispatcher.rates["tiny"].per_second
        monkeypatch.setattr(ServedModel, "compute", fail)
        for _ in range(5):
            with pytest.raises(RuntimeError):
                await service.embed(["the text"] * 20)
        assert service.dispatcher.rates["tiny"].per_second == before
        assert service.stall_reason() == "the last 5 batches failed"


def test_small_batches_hardly_change_the_speed_of_large_ones() -> None:
    rate = Rate()
    rate.observe(FIRST_COST, 0.1)
    for _ in range(100):
        rate.observe(2.0, 0.004)
    assert rate.per_second > 0.5 * FIRST_COST / 0.1


def test_a_batch_of_a_slow_model_takes_no_longer_than_allowed() -> None:
    rate = Rate()
    assert rate.budget(20.0) == FIRST_COST
    rate.observe(FIRST_COST, 4.0)
    assert rate.seconds(rate.budget(20.0)) == pytest.approx(0.02)


async def test_a_model_s_own_timeout_is_no_deadline(
    tiny: Embedder, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> Any:
        raise TimeoutError("the device does not answer")

    async with Service({"tiny": tiny}) as service:
        monkeypatch.setattr(ServedModel, "compute", fail)
        with pytest.raises(TimeoutError) as raised:
            await service.embed(["the text"])
        assert not isinstance(raised.value, DeadlineError)


@pytest.mark.parametrize("kind", [SystemExit, "short"])
async def test_a_lane_goes_on_after_anything(
    tiny: Embedder, monkeypatch: pytest.MonkeyPatch, kind: Any
) -> None:
    compute = ServedModel.compute

    def fail(self: ServedModel, task: Any, rows: Any, options: Any) -> Any:
        if kind is SystemExit:
            raise SystemExit(3)
        return compute(self, task, rows, options)[:-1]

    async with Service({"tiny": tiny}) as service:
        with monkeypatch.context() as patch:
            patch.setattr(ServedModel, "compute", fail)
            with pytest.raises(ServiceError):
                await service.embed(["the text"], timeout=5.0)
        assert (await service.embed(["the text"])).results.shape == (1, 16)


async def test_many_bad_texts_of_one_batch_fail_one_by_one(
    tiny: Embedder, monkeypatch: pytest.MonkeyPatch, gate: Gate
) -> None:
    """A thousand parts whose errors each name one row: no recursion, and every row is right."""
    compute = ServedModel.compute

    def failing(self: ServedModel, task: Any, rows: Any, options: Any) -> Any:
        bad = np.flatnonzero(rows.lengths == 5)
        if len(bad):
            raise NonFiniteVectorError("NaN", rows=[int(bad[0])])
        return compute(self, task, rows, options)

    async with Service({"tiny": tiny}, ServingOptions(batch_ms=1e6)) as service:
        gate.close()
        first = asyncio.create_task(service.embed(["the"]))
        await asyncio.sleep(0.05)
        calls = [
            asyncio.create_task(service.embed(["the row", "the text row" if n % 2 else "the"]))
            for n in range(1200)
        ]
        await asyncio.sleep(0.1)
        monkeypatch.setattr(ServedModel, "compute", failing)
        gate.open()
        await first
        answers: list[Any] = await asyncio.gather(*calls, return_exceptions=True)
    for number, answer in enumerate(answers):
        if number % 2:
            assert isinstance(answer, NonFiniteVectorError)
            assert answer.rows == (1,)
        else:
            assert answer.results.shape == (2, 16)


async def test_rows_are_those_of_the_request_in_every_batch(
    tiny: Embedder, monkeypatch: pytest.MonkeyPatch
) -> None:
    compute = ServedModel.compute

    def failing(self: ServedModel, task: Any, rows: Any, options: Any) -> Any:
        bad = np.flatnonzero(rows.lengths == 5)
        if len(bad):
            raise NonFiniteVectorError("NaN", rows=bad.tolist())
        return compute(self, task, rows, options)

    async with Service({"tiny": tiny}, ServingOptions(batch_ms=0.001)) as service:
        monkeypatch.setattr(ServedModel, "compute", failing)
        texts = ["the row"] * 900
        texts[777] = "the text row"
        with pytest.raises(NonFiniteVectorError, match="text 777") as raised:
            await service.embed(texts)
        assert raised.value.rows == (777,)


async def test_a_lane_goes_on_while_the_event_loop_is_busy(tiny: Embedder, gate: Gate) -> None:
    async with Service({"tiny": tiny}, ServingOptions(batch_ms=0.001)) as service:
        gate.close()
        gate.num_texts = 0
        call = asyncio.create_task(service.embed(["the row"] * 900))
        while not gate.num_texts:
            await asyncio.sleep(0.01)
        first = gate.num_texts
        gate.open()
        # Nothing runs in the event loop meanwhile.
        until = time.monotonic() + 20.0
        while gate.num_texts < 900 and time.monotonic() < until:
            time.sleep(0.005)
        assert first < 900
        assert gate.num_texts == 900
        assert (await call).results.shape == (900, 16)
        assert service.signals.batch_texts.total == 900
        assert service.dispatcher.stall_reason() is None


async def test_a_lane_that_lingers_computes_what_comes_in_the_end(
    tiny: Embedder, gate: Gate
) -> None:
    async with Service({"tiny": tiny}) as service:
        found = []
        for _ in range(3):
            gate.close()
            before = gate.num_texts
            calls = [asyncio.create_task(service.embed(["the"]))]
            while gate.num_texts == before:
                await asyncio.sleep(0.01)
            calls += [asyncio.create_task(service.embed(["the row"])) for _ in range(8)]
            await asyncio.sleep(0.05)
            gate.open()
            # The batch of 8 is followed by one request, or two.
            calls.append(asyncio.create_task(service.embed(["row"])))
            await asyncio.gather(*calls)
            found.append((await service.embed(["the row"])).results[0, 0])
        assert sum(service.signals.batch_texts.counts) >= 9
    assert len(set(found)) == 1


async def test_clients_that_wait_for_their_answers_share_batches(
    tiny: Embedder, gate: Gate, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without lingering, batches of 1 and of 7 would alternate: 10 batches instead of 6."""
    compute = ServedModel.compute

    def slow(*given: Any) -> Any:
        time.sleep(0.01)
        return compute(*given)

    async def ask(service: Service) -> None:
        for _ in range(5):
            await service.embed(["the row"])

    async with Service({"tiny": tiny}) as service:
        monkeypatch.setattr(ServedModel, "compute", slow)
        # Half a second, so that the count depends on no speed.
        monkeypatch.setattr(dispatcher, "LINGER_SHARE", 50.0)
        gate.close()
        gate.num_texts = 0
        clients = [asyncio.create_task(ask(service))]
        while not gate.num_texts:
            await asyncio.sleep(0.01)
        clients += [asyncio.create_task(ask(service)) for _ in range(7)]
        while service.dispatcher.scheduler.num_texts < 7:
            await asyncio.sleep(0.01)
        gate.open()
        await asyncio.gather(*clients)
        assert service.signals.batch_texts.total == 40
        assert sum(service.signals.batch_texts.counts) < 8


async def test_lanes_answer_everything_rightly_in_every_disorder(
    tiny: Embedder, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Three lanes, two models, priorities, cancels, deadlines, bad texts and failing batches."""
    compute, lanes, places = ServedModel.compute, set[str](), itertools.count(1)
    words = ("the", "row", "the row", "the text", "a row")
    bad, breaking = "the text row", "the text a row"
    vectors = dict(zip(words, tiny.encode(words), strict=True))
    ends = Counter[str]()

    def failing(self: ServedModel, task: Any, rows: Any, options: Any) -> Any:
        lanes.add(threading.current_thread().name)
        time.sleep(0.002)
        if next(places) % 13 == 0 or 6 in rows.lengths:
            raise RuntimeError("broken")
        found = np.flatnonzero(rows.lengths == 5)
        if len(found):
            raise NonFiniteVectorError("NaN", rows=found.tolist())
        return compute(self, task, rows, options)

    async def ask(service: Service, draw: random.Random, client: int) -> None:
        for _ in range(25):
            texts = draw.choices(words, k=draw.choice((1, 1, 2, 40)))
            if draw.random() < 0.15:
                texts[-1] = draw.choice((bad, bad, breaking))
            call = asyncio.ensure_future(
                service.embed(
                    texts,
                    draw.choice(("one", "other")),
                    client=client % 4,
                    priority=draw.choice((0, 0, 3, 9)),
                    timeout=draw.choice((0.003, 30.0, 30.0)),
                )
            )
            if draw.random() < 0.15:
                await asyncio.sleep(0.004 * draw.random())
                call.cancel()
            found = (await asyncio.gather(call, return_exceptions=True))[0]
            ends[type(found).__name__] += 1
            if isinstance(found, NonFiniteVectorError):
                assert (texts[-1], found.rows) == (bad, (len(texts) - 1,))
            elif isinstance(found, Answer):
                expected = np.stack([vectors[text] for text in texts])
                assert found.results.tobytes() == expected.tobytes()
            else:
                kinds = (RuntimeError, DeadlineError, OverloadedError, asyncio.CancelledError)
                assert isinstance(found, kinds)

    service = Service({"one": tiny, "other": tiny}, ServingOptions(lanes=3))
    async with service:
        monkeypatch.setattr(ServedModel, "compute", failing)
        seeds = range(12)
        await asyncio.gather(*(ask(service, random.Random(one), one) for one in seeds))
        scheduler, admission = service.dispatcher.scheduler, service.admission
        assert (scheduler.num_texts, scheduler.num_tokens, scheduler.waiting) == (0, 0, {})
        assert (admission.num_calls, admission.num_bytes, admission.answer_bytes) == (0, 0, 0)
    assert service.drained
    assert lanes == {"lane-0", "lane-1", "lane-2"}
    assert ends.total() == 12 * 25
    for name in ("Answer", "CancelledError", "NonFiniteVectorError", "RuntimeError"):
        assert ends[name] > 0
    assert ends["DeadlineError"] + ends["OverloadedError"] > 0


@pytest.mark.parametrize(
    ("broken", "name", "number"),
    # After a lone request, after a batch of several, and after the linger that follows it.
    [(Rate, "observe", 0), (Scheduler, "next_batch", 0), (Scheduler, "next_batch", 1)],
)
async def test_a_lane_goes_on_where_its_next_batch_fails(
    tiny: Embedder, gate: Gate, monkeypatch: pytest.MonkeyPatch, broken: Any, name: str, number: int
) -> None:
    """The answers of the batch before were lost, and the lane ended, while health was good."""
    work, places = getattr(broken, name), itertools.count()

    def fail(*given: Any) -> Any:
        if threading.current_thread().name == "lane-0" and next(places) == number:
            raise RuntimeError("broken")
        return work(*given)

    async with Service({"tiny": tiny, "other": tiny}) as service:
        gate.close()
        gate.num_texts = 0
        calls = [asyncio.create_task(service.embed(["the"]))]
        while not gate.num_texts:
            await asyncio.sleep(0.01)
        calls += [
            asyncio.create_task(service.embed(["the row"], model))
            for model in ("tiny",) * 8 + ("other",) * 2
        ]
        while service.dispatcher.scheduler.num_texts < 10:
            await asyncio.sleep(0.01)
        monkeypatch.setattr(broken, name, fail)
        gate.open()
        for answer in await asyncio.wait_for(asyncio.gather(*calls), 20.0):
            assert answer.results.shape == (1, 16)
        assert next(places) > number
        assert service.stall_reason() is None
        service.dispatcher._lanes[0].close()
        while service.stall_reason() is None:
            await asyncio.sleep(0.01)
        assert service.stall_reason() == "the thread of a lane has ended"


async def test_each_model_s_texts_wait_at_its_own_speed(tiny: Embedder, gate: Gate) -> None:
    async with Service({"slow": tiny, "fast": tiny}) as service:
        for name, seconds in (("slow", 50.0), ("fast", 0.001)):
            rate = service.dispatcher.rates[name]
            rate.reset()
            rate.observe(1000.0, seconds)
        gate.close()
        first = asyncio.create_task(service.embed(["the"], "fast"))
        await asyncio.sleep(0.05)
        many = asyncio.create_task(service.embed(["the text"] * 40, "slow"))
        await asyncio.sleep(0.02)
        assert 5.0 < service.dispatcher.wait_seconds() < 10.0
        # A small request takes turns with the slow one; as large a one waits for all of it.
        assert service.dispatcher.turn_seconds(None, 0, 0.001) < 1.0
        assert service.dispatcher.turn_seconds("other", 0, 9.0) > 5.0
        with pytest.raises(OverloadedError) as raised:
            await service.embed(["the text"] * 40, "slow", timeout=9.0)
        assert raised.value.retry_after > 5.0
        gate.open()
        await asyncio.gather(first, many)


async def test_bytes_of_texts_are_those_in_memory(tiny: Embedder) -> None:
    async with Service({"tiny": tiny}, ServingOptions(max_queue_bytes=5000)) as service:
        await service.embed(["a" * 2000])
        with pytest.raises(InputError, match="the limit is 5000"):
            await service.embed(["\U0001f600" * 2000])


def test_urgent_and_patient_flows_are_served_in_few_visits(monkeypatch: pytest.MonkeyPatch) -> None:
    """Flows of priority 9 alone were visited 512 times as often for each batch."""
    visits, visit = 0, Scheduler._visit

    def counted(self: Any, *arguments: Any, **options: Any) -> bool:
        nonlocal visits
        visits += 1
        return visit(self, *arguments, **options)

    monkeypatch.setattr(Scheduler, "_visit", counted)
    scheduler = Scheduler()
    for flow in range(3):
        scheduler.add(
            Waiting(flow=flow, key=0, costs=[1.0] * 500, num_tokens=[1] * 500, priority=9)
        )
    batch = scheduler.next_batch(100.0, 1000)
    assert batch.num_texts == 100
    assert visits <= 16
    assert set(scheduler.waiting) == {0}
    cost, num_texts = scheduler.waiting[0]
    assert cost == pytest.approx(1400.0)
    assert num_texts == 1400
