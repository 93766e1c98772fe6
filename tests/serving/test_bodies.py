"""Whatever a body holds, the answer is one that the description names, and never 500."""

from __future__ import annotations

import base64
import copy
import json
import random
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import httpx
import numpy as np
import pytest

from encoder_engine.embedding import Embedder, Ranker
from encoder_engine.models import SequenceClassification
from encoder_engine.prediction.pipeline import pipeline
from encoder_engine.serving.http.guard import Keys
from encoder_engine.serving.server import Server
from encoder_engine.serving.service import Service
from encoder_engine.text import Tokenizer
from tests.embedding.tiny_model import write_head_directory
from tests.prediction.peer_models import write_model

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.slow

VALID: dict[str, dict[str, Any]] = {
    "/v1/embeddings": {
        "input": ["the row", "text"],
        "model": "tiny",
        "encoding_format": "base64",
        "dimensions": 7,
        "user": "me",
        "input_type": "query",
        "truncate": True,
        "priority": 3,
        "timeout_ms": 10_000,
    },
    "/embed": {"inputs": ["the", "row"], "truncate": True, "normalize": False, "dimensions": 3},
    "/embed_all": {"inputs": "the row", "prompt_name": "query", "truncation_direction": "Right"},
    "/embed_sparse": {"inputs": ["the"]},
    "/predict": {"inputs": [["the", "row"], ["a", "b"]], "raw_scores": True},
    "/rerank": {"query": "the", "texts": ["row", "text"], "return_text": True},
    "/v2/embed": {
        "texts": ["the", "row"],
        "input_type": "search_query",
        "embedding_types": ["float", "base64"],
        "output_dimension": 5,
        "truncate": "START",
    },
    "/v2/rerank": {"query": "the", "documents": ["row", {"text": "a"}], "top_n": 1},
    "/similarity": {"inputs": {"source_sentence": "a", "sentences": ["b"]}, "parameters": {}},
    "/tokenize": {"inputs": ["the row"], "add_special_tokens": False},
    "/decode": {"ids": [[5, 6], [7]], "skip_special_tokens": False},
    "/": {"inputs": "the row"},
    "/models/tagger": {
        "inputs": ["the row", "a"],
        "parameters": {"aggregation_strategy": "simple", "ignore_labels": ["O"], "stride": 4},
    },
    "/models/zero-shot": {
        "inputs": "the row",
        "parameters": {"candidate_labels": ["a", "b"], "hypothesis_template": "a {}"},
    },
    "/models/reader": {
        "inputs": [{"question": "the row", "context": "a row"}],
        "parameters": {"top_k": 2, "max_seq_len": 40, "doc_stride": 8},
    },
}
VALUES: tuple[Any, ...] = (
    None, True, 0, -1, 1, 2**31, 10**23, 1e308, -0.0, "", " ", "\x00", "\ud800", "\u6771" * 40,
    "words " * 3000, [], [[]], {}, {"a": 1}, [None], [1, 2], ["a", 3], ["a"] * 3000, [["a"] * 3],
    {"text": "a"}, "query", "float",
)  # fmt: skip


# Of each: its name, task, head and labels.
PIPELINES: list[tuple[str, str, str, list[str]]] = [
    ("tagger", "token-classification", "token", ["O", "B-PER", "I-PER"]),
    ("zero-shot", "zero-shot-classification", "sequence", ["contradiction", "entailment"]),
    ("reader", "question-answering", "question", []),
]


@pytest.fixture(scope="module")
def client(tiny: Embedder, tmp_path_factory: pytest.TempPathFactory) -> Iterator[httpx.Client]:
    folder = tmp_path_factory.mktemp("ranker")
    write_head_directory(folder, SequenceClassification, num_labels=1)
    ranker = Ranker.from_pretrained(folder, device="cpu", num_threads=1)
    pipelines = {
        name: pipeline(
            task, write_model(tmp_path_factory.mktemp(name), "bert", head, labels), device="cpu"
        )
        for name, task, head, labels in PIPELINES
    }
    with (
        Server(Service({"tiny": tiny, "ranker": ranker, **pipelines})) as server,
        httpx.Client(base_url=server.url, timeout=30.0) as found,
    ):
        yield found


def places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Yield the place of every value below a value."""
    found = value.items() if isinstance(value, dict) else enumerate(value)
    for key, inner in found:
        yield (*path, key)
        if isinstance(inner, dict | list):
            yield from places(inner, (*path, key))


def changed(draw: random.Random, body: dict[str, Any]) -> Any:
    """Return a body with a value replaced, left out, or added under another name."""
    found = copy.deepcopy(body)
    for _ in range(draw.randint(1, 2)):
        known = list(places(found))
        if not known:
            return draw.choice(VALUES)
        *path, last = draw.choice(known)
        inner: Any = found
        for key in path:
            inner = inner[key]
        kind = draw.randrange(4)
        if kind == 0:
            del inner[last]
        elif kind == 1 and isinstance(inner, dict):
            inner[draw.choice(("x", "input", "inputs", "texts", "documents"))] = inner.pop(last)
        else:
            inner[last] = copy.deepcopy(draw.choice(VALUES))
    return found


def written(draw: random.Random, body: Any) -> bytes:
    """Write a body as JSON, now and then broken."""
    text = json.dumps(body).encode()
    if draw.random() < 0.1:
        place = draw.randrange(len(text))
        wrong = draw.choice((b"", b"\xff", b"NaN", b"1e999", b"[" * 2000))
        return text[:place] + wrong + text[place:]
    return text


@pytest.mark.parametrize(
    "count", [60, pytest.param(10_000, marks=pytest.mark.exhaustive)], ids=["some", "many"]
)
@pytest.mark.parametrize("path", VALID)
def test_no_body_fails_the_server(client: httpx.Client, path: str, count: int) -> None:
    draw = random.Random(len(path))
    named = "/models/{model}" if path.startswith("/models/") else path
    described = client.get("/openapi.json").json()["paths"][named]["post"]["responses"]
    right = client.post(path, json=VALID[path])
    assert right.status_code == (424 if path == "/embed_sparse" else 200), right.text
    for _ in range(count):
        content = written(draw, changed(draw, VALID[path]))
        found = client.post(path, content=content, headers={"content-type": "application/json"})
        assert str(found.status_code) in described, content[:300]
        assert found.status_code != 500, content[:300]
        if found.status_code >= 400:
            error = found.json()["error"]
            assert error["message"] if path.startswith("/v") else error, content[:300]


# The least body of each route.
LEAST: dict[str, dict[str, Any]] = {
    "/v1/embeddings": {"input": "the row"},
    "/embeddings": {"input": "the row"},
    "/v1/embed": {"texts": ["the row"]},
    "/v2/embed": {"texts": ["the row"]},
    "/v1/rerank": {"query": "the", "documents": ["row"]},
    "/v2/rerank": {"query": "the", "documents": ["row"]},
    "/rerank": {"query": "the", "texts": ["row", "text"]},
    "/embed": {"inputs": "the row"},
    "/embed_all": {"inputs": "the row"},
    "/embed_sparse": {"inputs": "the row"},
    "/predict": {"inputs": "the row"},
    "/similarity": {"inputs": {"source_sentence": "a", "sentences": ["b"]}},
    "/tokenize": {"inputs": "the row"},
    "/decode": {"ids": [5, 6]},
    "/models/tagger": {"inputs": "the row"},
}


def optional_fields(description: Any, schema: Any) -> Iterator[tuple[str, ...]]:
    """Yield the path of every optional field of a schema, and of those below it."""
    for one in [schema, *schema.get("anyOf", ())]:
        if "$ref" in one:
            name = one["$ref"].rpartition("/")[2]
            found = description["components"]["schemas"][name]
            for field, kind in found["properties"].items():
                if field not in found.get("required", ()):
                    yield (field,)
                    yield from ((field, *rest) for rest in optional_fields(description, kind))


def without_id(answer: httpx.Response) -> Any:
    found = answer.json()
    return found | {"id": None} if isinstance(found, dict) else found


def test_null_means_that_an_optional_field_is_not_given(client: httpx.Client) -> None:
    """``encoding_format``, ``return_documents``, ``priority`` and others were refused."""
    description, seen = client.get("/openapi.json").json(), 0
    posts = {path for path, methods in description["paths"].items() if "post" in methods}
    named = {path: path for path in LEAST} | {"/models/tagger": "/models/{model}"}
    assert set(named.values()) == posts - {"/", "/invocations"}
    for path, body in LEAST.items():
        content = description["paths"][named[path]]["post"]["requestBody"]["content"]
        fields = list(optional_fields(description, content["application/json"]["schema"]))
        expected = client.post(path, json=body)
        assert expected.status_code == (424 if path == "/embed_sparse" else 200), expected.text
        for first, *rest in fields:
            if path == "/rerank" and (first,) not in [
                *optional_fields(description, {"$ref": "/Rerank"})
            ]:
                # Of the other body of this route.
                continue
            given = client.post(path, json=body | {first: {rest[0]: None} if rest else None})
            assert given.status_code == expected.status_code, (path, first, rest, given.text)
            assert without_id(given) == without_id(expected), (path, first, rest)
            seen += 1
    assert seen > 50


@pytest.mark.parametrize("side", ["left", "right"])
@pytest.mark.parametrize("spelling", [str.lower, str.title])
def test_a_long_text_loses_the_end_that_the_request_names(
    client: httpx.Client, tiny: Embedder, side: Any, spelling: Any
) -> None:
    """``Left`` was refused, and not named as a choice."""
    text = "the long query row " * 9 + "words passage text the row the text"
    tokenizer = Tokenizer(replace(tiny.tokenizer.spec, truncation_side=side))
    cut = Embedder(tiny.encoder, tokenizer, tiny.recipe)
    direction = {"truncation_direction": spelling(side)}
    for path, expected in (
        ("/embed", cut.encode([text], on_truncation="ignore")),
        ("/embed_all", cut.encode_tokens([text], on_truncation="ignore")[0][None]),
    ):
        found = client.post(path, json={"inputs": text} | direction).json()
        assert np.array_equal(np.float32(found), expected)
    others: dict[str, Any] = {
        "/predict": {"inputs": text},
        "/rerank": {"query": "the", "texts": [text]},
    }
    for path, body in others.items():
        assert client.post(path, json=body | direction).status_code == 200


@pytest.mark.parametrize(
    ("path", "body", "param", "said"),
    [
        ("/embed", {"inputs": "a", "truncation_direction": "up"}, None, "left, Left, right, Right"),
        (
            "/similarity",
            {
                "inputs": {"source_sentence": "a", "sentences": ["b"]},
                "parameters": {"truncation_direction": "up"},
            },
            None,
            "left, Left, right, Right",
        ),
        ("/v1/embeddings", {"input": "a", "encoding_format": "int8"}, None, "float, base64"),
        ("/v2/embed", {"texts": ["a"], "embedding_types": ["int8"]}, None, "float, base64"),
        ("/v1/embeddings", {"input": "a", "dimensions": 5000}, "dimensions", "1..16, got 5000"),
        ("/embed", {"inputs": "a", "dimensions": 5000}, None, "dimensions must lie in 1..16"),
        (
            "/v2/embed",
            {"texts": ["a"], "output_dimension": 5000},
            "output_dimension",
            "output_dimension must lie in 1..16",
        ),
        ("/v1/embeddings", {"input": ["a", None]}, "input[1]", "expected a text, got `null`"),
        ("/v1/embeddings", {"input": "a", "prompt_name": "x"}, "prompt_name", "Available prompts"),
    ],
)
def test_a_message_has_the_names_of_its_request(
    client: httpx.Client, path: str, body: Any, param: str | None, said: str
) -> None:
    found = client.post(path, json=body)
    assert found.status_code in (400, 422)
    error = found.json()["error"]
    assert said in (error["message"] if isinstance(error, dict) else error), found.text
    assert "truncate_dim" not in found.text
    if param is not None:
        assert error["param"] == param


def test_cohere_s_embed_answers_by_version_and_type(client: httpx.Client, tiny: Embedder) -> None:
    texts = ["the row", "text"]
    queries = tiny.encode_query(texts)
    body = {"texts": texts, "model": "tiny", "input_type": "search_query"}
    first = client.post("/v1/embed", json=body).json()
    assert (first["response_type"], first["texts"]) == ("embeddings_floats", texts)
    assert np.array_equal(np.float32(first["embeddings"]), queries)
    second = client.post("/v2/embed", json=body).json()
    assert np.array_equal(np.float32(second["embeddings"]["float"]), queries)
    both = body | {"embedding_types": ["base64", "float"], "input_type": "classification"}
    found = client.post("/v2/embed", json=both).json()["embeddings"]
    rows = [np.frombuffer(base64.b64decode(row), "<f4") for row in found["base64"]]
    assert np.array_equal(rows, tiny.encode(texts))
    assert np.array_equal(np.float32(found["float"]), rows)
    long = {"texts": ["words " * 60]}
    assert client.post("/v2/embed", json=long | {"truncate": "NONE"}).status_code == 400
    assert client.post("/v2/embed", json=long | {"truncate": "END"}).status_code == 200


def test_a_model_is_described_under_its_name(client: httpx.Client) -> None:
    listed = client.get("/v1/models").json()["data"]
    assert [client.get(f"/v1/models/{one['id']}").json() for one in listed] == listed
    unknown = client.get("/v1/models/nothing")
    assert (unknown.status_code, unknown.json()["error"]["code"]) == (404, "model_not_found")
    assert 'route="/v1/models/{model}"' in client.get("/metrics").text
    assert "nothing" not in client.get("/metrics").text


def test_the_routes_are_described_on_a_page(client: httpx.Client) -> None:
    page = client.get("/docs")
    assert page.headers["content-type"].startswith("text/html")
    for path in client.get("/openapi.json").json()["paths"]:
        assert f" {path}</code>" in page.text


@pytest.mark.parametrize("public", [False, True])
def test_metrics_may_be_read_without_a_key(tiny: Embedder, public: bool) -> None:
    keys = Keys.read("me:secret")
    with Server(Service({"tiny": tiny}), keys=keys, metrics_public=public) as server:
        headers = {"host": "10.1.2.3:8080"}
        found = httpx.get(f"{server.url}/metrics", headers=headers)
        assert found.status_code == (200 if public else 403)
        assert httpx.get(f"{server.url}/metrics").status_code == (200 if public else 401)
        assert httpx.get(f"{server.url}/info").status_code == 401
        described = httpx.get(f"{server.url}/openapi.json", headers={"authorization": "secret"})
        operation = described.json()["paths"]["/metrics"]["get"]
        assert ("security" in operation) != public
