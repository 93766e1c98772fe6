"""Every kind of model is served with the bytes of its own methods, and no option is ignored."""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import httpx
import numpy as np
import pytest
import torch

from encoder_engine.embedding import Embedder, MultiVectorEmbedder, Ranker, SparseEmbedder
from encoder_engine.embedding.hybrid import HybridEmbedder
from encoder_engine.embedding.static.embedder import StaticEmbedder
from encoder_engine.errors import ConfigError, EncoderEngineError, InputError, SequenceLengthError
from encoder_engine.families.heads import PROBLEM_TYPES
from encoder_engine.files import CHECKSUMS
from encoder_engine.models import MaskedLM, SequenceClassification
from encoder_engine.opening.router import TokenWeights
from encoder_engine.ops.testing import assert_within_budget
from encoder_engine.serving.http.cohere import cut_documents
from encoder_engine.serving.options import ServingOptions
from encoder_engine.serving.server import Server
from encoder_engine.serving.service import Service
from encoder_engine.serving.tasks import CallOptions
from encoder_engine.text import Tokenizer
from tests.embedding.static.static_models import write_model2vec
from tests.embedding.tiny_model import write_head_directory

if TYPE_CHECKING:
    from pathlib import Path

TEXTS = ["the long query", "a row, of (text).", "", "words passage", "text the row the text"]
QUERY, DOCUMENT = CallOptions(input_type="query"), CallOptions(input_type="document")


def serve(model: Any, task: str, options: CallOptions | None = None, **settings: Any) -> Any:
    """Return the results of a service for all texts, of which each is also sent alone."""

    async def run() -> Any:
        async with Service({"tiny": model}, ServingOptions(**settings)) as service:
            call = getattr(service, task)
            if task == "rank":
                return (await call(TEXTS[0], TEXTS[1:], options=options)).results
            whole = (await call(TEXTS, options=options)).results
            each = await asyncio.gather(*(call([text], options=options) for text in TEXTS))
            for row, alone in zip(whole, each, strict=True):
                assert same(row, alone.results[0])
            return whole

    return asyncio.run(run())


def same(first: Any, second: Any) -> bool:
    if isinstance(first, tuple):
        return all(np.array_equal(one, other) for one, other in zip(first, second, strict=True))
    return np.array_equal(first, second)


def same_rows(found: Any, expected: Any, row: Any) -> bool:
    return len(found) == len(expected) and all(
        same(found[number], row(expected, number)) for number in range(len(expected))
    )


def sparse_row(vectors: Any, number: int) -> Any:
    return vectors.row(number)


def token_row(vectors: Any, number: int) -> Any:
    return vectors[number]


@pytest.fixture(scope="module")
def sparse(tmp_path_factory: pytest.TempPathFactory) -> SparseEmbedder:
    """Return a sparse embedder whose queries need no model."""
    folder = write_head_directory(tmp_path_factory.mktemp("sparse"), MaskedLM)
    plain = SparseEmbedder.from_pretrained(folder, device="cpu", num_threads=1)
    weights = np.random.default_rng(2).random(plain.dimension).astype(np.float32)
    table = TokenWeights(tokenizer=plain.tokenizer, weights_V=weights, max_length=4)
    return SparseEmbedder(plain.model, plain.tokenizer, query_weights=table)


@pytest.fixture(scope="module")
def ranker(tmp_path_factory: pytest.TempPathFactory) -> Ranker:
    folder = tmp_path_factory.mktemp("ranker")
    write_head_directory(folder, SequenceClassification, num_labels=1)
    return Ranker.from_pretrained(folder, device="cpu", num_threads=1)


@pytest.fixture(scope="module")
def static(tmp_path_factory: pytest.TempPathFactory) -> StaticEmbedder:
    return StaticEmbedder.from_pretrained(write_model2vec(tmp_path_factory.mktemp("static")))


def test_dense_vectors_with_prompts_and_dimensions(tiny: Embedder) -> None:
    assert same(serve(tiny, "embed", QUERY), tiny.encode_query(TEXTS))
    assert same(serve(tiny, "embed", DOCUMENT), tiny.encode_document(TEXTS))
    cut = CallOptions(dimensions=5, normalize=False)
    assert same(
        serve(tiny, "embed", cut), tiny.encode(TEXTS, truncate_dim=5, normalize_embeddings=False)
    )


def test_static_vectors(static: StaticEmbedder) -> None:
    assert same(serve(static, "embed"), static.encode(TEXTS))
    cut = CallOptions(dimensions=7)
    assert same(serve(static, "embed", cut), static.encode(TEXTS, truncate_dim=7))


def test_queries_of_a_sparse_model_take_their_own_route(sparse: SparseEmbedder) -> None:
    queries, documents = sparse.encode_query(TEXTS, on_truncation="ignore"), None
    assert same_rows(serve(sparse, "sparse", QUERY), queries, sparse_row)
    documents = sparse.encode_document(TEXTS)
    assert same_rows(serve(sparse, "sparse", DOCUMENT), documents, sparse_row)
    assert same_rows(serve(sparse, "sparse"), sparse.encode(TEXTS), sparse_row)
    with pytest.raises(SequenceLengthError):
        serve(sparse, "sparse", QUERY, truncation="refuse")


def test_queries_and_documents_of_a_late_interaction_model(tiny: Embedder) -> None:
    projection = np.random.default_rng(4).normal(size=(6, 16)).astype(np.float32)
    many = MultiVectorEmbedder(tiny, projection, skipped=[2, 3])
    assert same_rows(serve(many, "tokens"), many.encode_documents(TEXTS), token_row)
    for options in (QUERY, CallOptions(prompt_name="query")):
        assert same_rows(serve(many, "tokens", options), many.encode_queries(TEXTS), token_row)
    for wrong in (
        CallOptions(prompt_name="passage"),
        CallOptions(prompt_name="query", input_type="document"),
        CallOptions(normalize=False),
        CallOptions(dimensions=3),
    ):
        with pytest.raises(InputError):
            serve(many, "tokens", wrong)


def test_scores_of_a_ranker(ranker: Ranker) -> None:
    expected = ranker.score([(TEXTS[0], text) for text in TEXTS[1:]])
    assert same(serve(ranker, "rank"), expected)


@pytest.mark.parametrize(
    ("kind", "task", "options"),
    [
        ("tiny", "embed", {"raw_scores": True}),
        ("tiny", "tokens", {"dimensions": 3}),
        ("static", "embed", {"raw_scores": True}),
        ("sparse", "sparse", {"dimensions": 3}),
        ("sparse", "sparse", {"normalize": True}),
        ("ranker", "rank", {"input_type": "query"}),
        ("ranker", "rank", {"normalize": True}),
        ("ranker", "classify", {"dimensions": 3}),
    ],
)
def test_an_option_without_a_meaning_is_refused(
    kind: str, task: str, options: Any, request: pytest.FixtureRequest
) -> None:
    (name,) = options
    with pytest.raises(InputError, match=f"{name} has no meaning"):
        serve(request.getfixturevalue(kind), task, CallOptions(**options))


def test_a_request_may_allow_the_truncation_that_the_server_refuses(tiny: Embedder) -> None:
    long = ["words " * 60]

    async def run() -> None:
        async with Service({"tiny": tiny}, ServingOptions(truncation="refuse")) as service:
            with pytest.raises(SequenceLengthError):
                await service.embed(long)
            answer = await service.embed(long, options=CallOptions(refuses_long=False))
            assert answer.truncated == (0,)

    asyncio.run(run())


@pytest.mark.slow
def test_a_hybrid_model_has_three_tasks(tmp_path: Path) -> None:
    from tests.embedding.hybrid_model import write_hybrid_directory

    model = HybridEmbedder.from_pretrained(write_hybrid_directory(tmp_path), device="cpu")
    expected = model.encode(TEXTS)
    assert same(serve(model, "embed"), expected.dense)
    assert same_rows(serve(model, "sparse"), expected.sparse, sparse_row)
    assert same_rows(serve(model, "tokens"), expected.tokens, token_row)


def test_lanes_share_the_threads_of_each_model(tmp_path: Path, static: StaticEmbedder) -> None:
    del tmp_path
    model = StaticEmbedder(static.model, num_threads=6)

    async def run() -> tuple[int, int]:
        async with Service({"static": model}, ServingOptions(lanes=3)):
            return model.engine.num_threads, 0

    assert asyncio.run(run())[0] == 2
    assert model.engine.num_threads == 6


def test_a_task_finds_the_first_model_that_has_it(tiny: Embedder, ranker: Ranker) -> None:
    async def run() -> Any:
        async with Service({"tiny": tiny, "ranker": ranker}) as service:
            return (await service.rank("the", ["text"])).results

    assert same(asyncio.run(run()), ranker.score([("the", "text")]))
    with pytest.raises(EncoderEngineError, match="cannot be served"):
        Service({"text": "text"})


@pytest.mark.parametrize(("side", "expected"), [("right", "the row"), ("left", "words row")])
def test_documents_lose_the_end_that_the_tokenizer_cuts(
    tiny: Embedder, side: Any, expected: str
) -> None:
    tokenizer = Tokenizer(replace(tiny.tokenizer.spec, truncation_side=side))
    found, cut = cut_documents(tokenizer, ["the row text words row", "the row"], 2)
    assert (found, cut) == ([expected, "the row"], [0])


def write_classifier(folder: Path, num_labels: int, problem_type: str | None) -> Path:
    write_head_directory(folder, SequenceClassification, num_labels=num_labels)
    config = json.loads((folder / "config.json").read_text("utf-8"))
    (folder / "config.json").write_text(json.dumps(config | {"problem_type": problem_type}))
    # As a published model has none.
    (folder / CHECKSUMS).unlink()
    return folder


# transformers refuses one label of one.
LABELS = [(1, None), (1, "regression"), (1, "multi_label_classification"), (3, None)]
LABELS += [(3, problem_type) for problem_type in PROBLEM_TYPES]


def table(rows: Any, dtype: torch.dtype) -> torch.Tensor:
    """Return scores in the order of the labels' names."""
    ordered = [sorted(row, key=lambda one: str(one["label"])) for row in rows]
    return torch.tensor([[one["score"] for one in row] for row in ordered], dtype=dtype)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("num_labels", "problem_type", "engine"),
    [
        pytest.param(*labels, engine, marks=[pytest.mark.exhaustive] * (place % 2 != by))
        for place, labels in enumerate(LABELS)
        for by, engine in enumerate(("compiled", "torch"))
    ],
)
def test_labels_have_the_scores_of_transformers_pipeline(
    tmp_path: Path, engine: Any, problem_type: str | None, num_labels: int
) -> None:
    """A model of several labels a text got softmax: .559 where its pipeline has .912."""
    import transformers

    folder = write_classifier(tmp_path, num_labels, problem_type)
    ranker = Ranker.from_pretrained(folder, device="cpu", num_threads=1, engine=engine)
    pipeline: Any = transformers.pipeline("text-classification", str(folder), device="cpu")
    texts = ["the long query", "a row, of (text)."]
    body = {"inputs": [[text] for text in texts]}
    with Server(Service({"ranker": ranker})) as server:
        found = httpx.post(f"{server.url}/predict", json=body).json()
        raw = httpx.post(f"{server.url}/predict", json=body | {"raw_scores": True}).json()
        given = {"parameters": {"function_to_apply": "none", "top_k": 2}}
        best = httpx.post(f"{server.url}/predict", json=body | given).json()
    assert best == [row[:2] for row in raw]
    eager = [pipeline(texts, top_k=None, **more) for more in ({}, {"function_to_apply": "none"})]
    pipeline.model.double()
    truth = [pipeline(texts, top_k=None, **more) for more in ({}, {"function_to_apply": "none"})]
    for ours, theirs, exact in zip((found, raw), eager, truth, strict=True):
        rows = table(ours, torch.float32), table(theirs, torch.float32)
        assert_within_budget(*rows, table(exact, torch.float64), terms=64)


def test_an_unknown_problem_type_is_refused(tmp_path: Path) -> None:
    folder = write_classifier(tmp_path, 2, "two_labels")
    for engine in ("compiled", "torch"):
        with pytest.raises(ConfigError, match=r"problem_type.*multi_label_classification"):
            Ranker.from_pretrained(folder, device="cpu", engine=engine)
