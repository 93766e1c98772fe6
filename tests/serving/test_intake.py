"""Requests that arrive together are tokenized together, and each fails by its own texts alone."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from encoder_engine.errors import OverloadedError, SequenceLengthError, TextError
from encoder_engine.serving.models import CallOptions, ServedModel
from encoder_engine.serving.service import Service

if TYPE_CHECKING:
    from encoder_engine.embedding import Embedder
    from tests.serving.conftest import Gate


def arrive_together(
    model: Embedder, requests: list[list[str]], monkeypatch: pytest.MonkeyPatch, **options: Any
) -> tuple[list[Any], list[int]]:
    """Return the answers of requests, and the texts of each call of the tokenizer."""
    counts, prepare = list[int](), ServedModel.prepare

    def counted(self: ServedModel, key: Any, texts: Any) -> Any:
        counts.append(len(texts))
        return prepare(self, key, texts)

    async def run() -> list[Any]:
        async with Service({"tiny": model}) as service:
            monkeypatch.setattr(ServedModel, "prepare", counted)
            calls = (service.embed(one, options=CallOptions(**options)) for one in requests)
            return list(await asyncio.gather(*calls, return_exceptions=True))

    return asyncio.run(run()), counts


def test_requests_that_arrive_together_share_a_call_of_the_tokenizer(
    tiny: Embedder, monkeypatch: pytest.MonkeyPatch
) -> None:
    requests = [["the row"], ["the", "text row"], ["a text"]]
    answers, counts = arrive_together(tiny, requests, monkeypatch)
    assert counts == [4]
    for texts, answer in zip(requests, answers, strict=True):
        assert np.array_equal(answer.results, tiny.encode(texts))
        assert answer.num_characters == sum(map(len, texts))


def test_a_text_that_is_refused_fails_its_own_request_alone(
    tiny: Embedder, monkeypatch: pytest.MonkeyPatch
) -> None:
    requests = [["the row"], ["the", "\ud800"], ["a text"], ["the", "row", "the " * 9000]]
    answers, counts = arrive_together(tiny, requests, monkeypatch, refuses_long=True)
    assert counts == [7, 1, 2, 1, 3]
    assert isinstance(answers[1], TextError)
    assert answers[1].row == 1
    assert isinstance(answers[3], SequenceLengthError)
    assert answers[3].row == 2
    for number in (0, 2):
        assert np.array_equal(answers[number].results, tiny.encode(requests[number]))


def test_texts_that_were_cut_are_those_of_the_request(
    tiny: Embedder, monkeypatch: pytest.MonkeyPatch
) -> None:
    requests = [["the row"], ["the", "the " * 900], ["the " * 900, "the", "the " * 900]]
    answers, _ = arrive_together(tiny, requests, monkeypatch)
    assert [answer.truncated for answer in answers] == [(), (1,), (0, 2)]


async def test_the_time_of_the_tokenizer_counts_towards_the_deadline(
    tiny: Embedder, gate: Gate, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A request that waits 9.7 s is out of reach when 0.5 of its 10 s have passed."""
    prepare = ServedModel.prepare

    def slow(self: ServedModel, key: Any, texts: Any) -> Any:
        time.sleep(0.5)
        return prepare(self, key, texts)

    async with Service({"tiny": tiny}) as service:
        gate.close()
        gate.num_texts = 0
        calls = [asyncio.create_task(service.embed(["the"]))]
        while not gate.num_texts:
            await asyncio.sleep(0.01)
        calls.append(asyncio.create_task(service.embed(["the"])))
        while not service.dispatcher.scheduler.num_texts:
            await asyncio.sleep(0.01)
        monkeypatch.setattr(service.dispatcher, "turn_seconds", lambda *_: 9.7)
        monkeypatch.setattr(service.dispatcher, "seconds", lambda *_: 0.0)
        monkeypatch.setattr(ServedModel, "prepare", slow)
        with pytest.raises(OverloadedError, match=r"about 9\.7 s, but its deadline"):
            await service.embed(["the " * 20_000], timeout=10.0)
        gate.open()
        await asyncio.gather(*calls)
