"""Whatever a body holds, the answer is one that the description names, and never 500."""

from __future__ import annotations

import copy
import json
import random
from typing import TYPE_CHECKING, Any

import httpx
import pytest

from encoder_engine.embedding import Ranker
from encoder_engine.models import SequenceClassification
from encoder_engine.serving.server import Server
from encoder_engine.serving.service import Service
from tests.embedding.tiny_model import write_head_directory

if TYPE_CHECKING:
    from collections.abc import Iterator

    from encoder_engine.embedding import Embedder

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
    "/v2/rerank": {"query": "the", "documents": ["row", {"text": "a"}], "top_n": 1},
    "/similarity": {"inputs": {"source_sentence": "a", "sentences": ["b"]}, "parameters": {}},
    "/tokenize": {"inputs": ["the row"], "add_special_tokens": False},
    "/decode": {"ids": [[5, 6], [7]], "skip_special_tokens": False},
    "/": {"inputs": "the row"},
}
VALUES: tuple[Any, ...] = (
    None, True, 0, -1, 1, 2**31, 10**23, 1e308, -0.0, "", " ", "\x00", "\ud800", "\u6771" * 40,
    "words " * 3000, [], [[]], {}, {"a": 1}, [None], [1, 2], ["a", 3], ["a"] * 3000, [["a"] * 3],
    {"text": "a"}, "query", "float",
)  # fmt: skip


@pytest.fixture(scope="module")
def client(tiny: Embedder, tmp_path_factory: pytest.TempPathFactory) -> Iterator[httpx.Client]:
    folder = tmp_path_factory.mktemp("ranker")
    write_head_directory(folder, SequenceClassification, num_labels=1)
    ranker = Ranker.from_pretrained(folder, device="cpu", num_threads=1)
    with (
        Server(Service({"tiny": tiny, "ranker": ranker})) as server,
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
    described = client.get("/openapi.json").json()["paths"][path]["post"]["responses"]
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
