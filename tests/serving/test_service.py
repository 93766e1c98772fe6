"""Served texts have the bytes of direct calls, and a request fails by its own texts alone."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from encoder_engine.embedding import Embedder, Ranker
from encoder_engine.errors import (
    DeadlineError,
    DrainingError,
    InputError,
    NonFiniteVectorError,
    OverloadedError,
    SequenceLengthError,
    UnknownNameError,
    UnsupportedFeatureError,
)
from encoder_engine.models import SequenceClassification
from encoder_engine.serving.models import CallOptions, ServedModel
from encoder_engine.serving.options import ServingOptions
from encoder_engine.serving.service import Service
from tests.embedding.tiny_model import write_head_directory

if TYPE_CHECKING:
    from collections.abc import Coroutine
    from pathlib import Path

TEXTS = [f"text {number} " + "of some words " * (number % 9) for number in range(60)]


@pytest.fixture(scope="module")
def embedder(minilm: Path) -> Embedder:
    return Embedder.from_pretrained(minilm, device="cpu", num_threads=1)


def run(coroutine: Coroutine[Any, Any, Any]) -> Any:
    return asyncio.run(coroutine)


def test_texts_have_the_bytes_of_encode_whatever_shares_their_batch(embedder: Embedder) -> None:
    expected = embedder.encode(TEXTS)

    async def serve() -> tuple[Any, list[Any]]:
        async with Service({"minilm": embedder}) as service:
            whole = await service.embed(TEXTS)
            calls = (service.embed([text], client=n % 5) for n, text in enumerate(TEXTS))
            return whole, await asyncio.gather(*calls)

    whole, lone = run(serve())
    assert np.array_equal(whole.results, expected)
    for answer, vector in zip(lone, expected, strict=True):
        assert np.array_equal(answer.results[0], vector)


def test_one_text_gives_its_vector(embedder: Embedder) -> None:
    async def serve() -> Any:
        async with Service({"minilm": embedder}) as service:
            return (await service.embed(TEXTS[0])).results

    np.testing.assert_array_equal(run(serve()), embedder.encode(TEXTS[0]))


def test_one_document_is_no_list_of_characters(tmp_path: Path) -> None:
    """Each character got a score, in silence."""
    write_head_directory(tmp_path, SequenceClassification, num_labels=1)
    ranker = Ranker.from_pretrained(tmp_path, device="cpu")

    async def serve() -> Any:
        async with Service({"ranker": ranker}) as service:
            return (await service.rank("the text", "a row of words")).results

    np.testing.assert_array_equal(run(serve()), ranker.score([("the text", "a row of words")]))


def test_options_are_those_of_the_methods(embedder: Embedder) -> None:
    async def serve() -> tuple[Any, Any]:
        async with Service({"minilm": embedder}) as service:
            cut = await service.embed(TEXTS[:3], options=CallOptions(dimensions=64))
            return cut, await service.tokens(TEXTS[:3])

    cut, tokens = run(serve())
    assert np.array_equal(cut.results, embedder.encode(TEXTS[:3], truncate_dim=64))
    for found, expected in zip(tokens.results, embedder.encode_tokens(TEXTS[:3]), strict=True):
        assert np.array_equal(found, expected)


def fail_for(monkeypatch: pytest.MonkeyPatch, raised: str) -> None:
    """Let the model fail for every batch with a text of 7 tokens, by naming the row or not."""
    compute = ServedModel.compute

    def failing(self: ServedModel, task: Any, rows: Any, options: Any) -> Any:
        bad = np.flatnonzero(rows.lengths == 7)
        if len(bad) and raised == "rows":
            raise NonFiniteVectorError("it is NaN", rows=bad.tolist())
        if len(bad):
            raise RuntimeError("it is broken")
        return compute(self, task, rows, options)

    monkeypatch.setattr(ServedModel, "compute", failing)


@pytest.mark.parametrize(("raised", "error"), [("rows", NonFiniteVectorError), ("", RuntimeError)])
def test_a_bad_text_fails_alone(
    embedder: Embedder, monkeypatch: pytest.MonkeyPatch, raised: str, error: type[Exception]
) -> None:
    texts = ["one two three", *("a b c d e" if n == 13 else "a b c d" for n in range(40))]
    assert len(embedder.tokenizer.encode("a b c d e")) == 7
    expected = embedder.encode(texts)
    fail_for(monkeypatch, raised)

    async def serve() -> list[Any]:
        async with Service({"minilm": embedder}) as service:
            calls = (service.embed([text], client=n) for n, text in enumerate(texts))
            return list(await asyncio.gather(*calls, return_exceptions=True))

    found = run(serve())
    for text, answer, vector in zip(texts, found, expected, strict=True):
        if text == "a b c d e":
            assert isinstance(answer, error)
        else:
            assert np.array_equal(answer.results[0], vector)


def test_what_cannot_be_served_is_refused_with_its_reason(embedder: Embedder) -> None:
    async def serve() -> None:
        async with Service({"minilm": embedder}, ServingOptions(max_texts=3)) as service:
            with pytest.raises(UnknownNameError, match="there are minilm"):
                await service.embed(["a"], "other")
            with pytest.raises(UnsupportedFeatureError, match="it has embed, tokens"):
                await service.sparse(["a"])
            with pytest.raises(InputError, match="no text"):
                await service.embed([])
            with pytest.raises(InputError, match="4 texts; the limit is 3"):
                await service.embed(["a"] * 4)
            with pytest.raises(SequenceLengthError):
                await service.embed(["a " * 600], options=CallOptions(refuses_long=True))
        with pytest.raises(DrainingError):
            await service.embed(["a"])

    run(serve())
    with pytest.raises(UnsupportedFeatureError, match="str cannot be served"):
        Service({"text": "a text"})


def test_a_full_queue_refuses_at_once_and_late_requests_are_not_computed(
    embedder: Embedder, monkeypatch: pytest.MonkeyPatch
) -> None:
    options = ServingOptions(max_queue_tokens=40, drain_timeout=5.0)

    async def serve() -> tuple[list[Any], int]:
        async with Service({"minilm": embedder}, options) as service:
            gate, computed = asyncio.Event(), 0
            loop, compute = asyncio.get_running_loop(), ServedModel.compute

            def waiting(self: ServedModel, task: Any, rows: Any, chosen: Any) -> Any:
                nonlocal computed
                computed += len(rows)
                asyncio.run_coroutine_threadsafe(gate.wait(), loop).result()
                return compute(self, task, rows, chosen)

            monkeypatch.setattr(ServedModel, "compute", waiting)
            first = asyncio.create_task(service.embed(["a"]))
            await asyncio.sleep(0.05)
            late = asyncio.create_task(service.embed(["b c"], timeout=0.05))
            queued = [asyncio.create_task(service.embed(["d e f"])) for _ in range(20)]
            with pytest.raises(DeadlineError):
                await late
            gate.set()
            return await asyncio.gather(first, *queued, return_exceptions=True), computed

    answers, computed = run(serve())
    refused = [answer for answer in answers if isinstance(answer, OverloadedError)]
    served = [answer for answer in answers if not isinstance(answer, Exception)]
    assert refused
    assert all(error.retry_after > 0 for error in refused)
    assert len(refused) + len(served) == len(answers)
    assert computed <= len(served)
