"""The routes answer as OpenAI, TEI and Cohere do, and nothing that comes makes them fail."""

from __future__ import annotations

import base64
import json
import signal
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import httpx
import numpy as np
import pytest

from encoder_engine.embedding import Embedder
from encoder_engine.serving.http.guard import Keys, Limits
from encoder_engine.serving.options import ServingOptions
from encoder_engine.serving.server import Server
from encoder_engine.serving.service import Service

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytestmark = pytest.mark.slow
CANARY = "xylophone-canary-7143"


@pytest.fixture(scope="module")
def embedder(minilm: Path) -> Embedder:
    return Embedder.from_pretrained(minilm, device="cpu", num_threads=1)


@pytest.fixture(scope="module")
def client(embedder: Embedder) -> Iterator[httpx.Client]:
    service = Service({"minilm": embedder}, ServingOptions(max_texts=50))
    limits = Limits(max_body_bytes=20_000)
    with Server(service, limits=limits) as server, httpx.Client(base_url=server.url) as found:
        yield found


def test_openai_s_embeddings_are_those_of_encode(client: httpx.Client, embedder: Embedder) -> None:
    texts = ["a text", "naïve café 東京"]
    expected = embedder.encode(texts)
    for form in ("float", "base64"):
        body = {"input": texts, "model": "minilm", "encoding_format": form}
        found = client.post("/v1/embeddings", json=body).json()
        assert found["object"] == "list"
        assert found["usage"]["prompt_tokens"] == len(embedder.tokenizer.encode_batch(texts).ids)
        for row, vector in zip(found["data"], expected, strict=True):
            given = row["embedding"]
            if form == "base64":
                given = np.frombuffer(base64.b64decode(given), dtype="<f4")
            assert np.array_equal(np.asarray(given, dtype=np.float32), vector)


def test_tei_s_routes_answer(client: httpx.Client, embedder: Embedder) -> None:
    found = client.post("/embed", json={"inputs": "a text"})
    assert np.array_equal(np.float32(found.json()), embedder.encode(["a text"]))
    assert found.headers["x-compute-tokens"] == "4"
    tokens = client.post("/embed_all", json={"inputs": ["a text"]}).json()
    assert np.array_equal(np.float32(tokens[0]), embedder.encode_tokens(["a text"])[0])
    rows = client.post("/tokenize", json={"inputs": "Hello worldly"}).json()[0]
    assert [row["text"] for row in rows if not row["special"]] == ["Hello", "world", "ly"]
    assert client.post("/decode", json={"ids": [101, 7592, 102]}).json() == ["hello"]
    body = {"inputs": {"source_sentence": "a", "sentences": ["b", "a"]}}
    cosines = client.post("/similarity", json=body).json()
    assert cosines[0] < cosines[1]
    cut = client.post("/embed", json={"inputs": ["short", "long " * 400]})
    assert cut.headers["x-truncated"] == "1"
    info = client.get("/info").json()
    assert (info["max_input_length"], info["max_concurrent_requests"]) == (256, 2048)
    assert info["model_type"] == {"embedding": {"pooling": "mean"}}


@pytest.mark.parametrize(
    ("path", "body", "status", "said"),
    [
        ("/v1/embeddings", {"input": [[1, 2]]}, 400, "check_embedding_ctx_length=False"),
        ("/v1/embeddings", {"input": [1, 2]}, 400, "check_embedding_ctx_length=False"),
        ("/v1/embeddings", {"input": []}, 400, "input is empty"),
        ("/v1/embeddings", {"input": "a", "model": "x"}, 404, "model_not_found"),
        ("/v1/embeddings", {"input": "a", "dimensions": 0}, 400, "dimensions"),
        ("/v1/embeddings", {"input": "a " * 600, "truncate": False}, 400, "context_length"),
        ("/v1/rerank", {"query": "a", "documents": ["b"]}, 400, "no task 'rank'"),
        ("/embed", {"inputs": ["a"] * 51}, 422, "51 texts; the limit is 50"),
        ("/embed", {"inputs": "a", "dimensions": 999}, 422, "1..384"),
        ("/embed_sparse", {"inputs": "a"}, 424, "no task 'sparse'"),
        ("/embed", {"inputs": "a" * 30_000}, 413, "larger than 20000 bytes"),
        ("/nothing", {}, 404, "no such path"),
        ("/info", {}, 405, "takes GET, HEAD"),
    ],
)
def test_errors_have_a_status_and_a_reason(
    client: httpx.Client, path: str, body: Any, status: int, said: str
) -> None:
    found = client.post(path, json=body)
    assert found.status_code == status
    assert said in found.text
    assert ("error_type" in found.json()) != path.startswith("/v1")


@pytest.mark.parametrize(
    ("content", "content_type", "status"),
    [
        (b'{"inputs": "a"', "application/json", 400),
        (b'{"inputs": "\xff"}', "application/json", 400),
        (b'{"inputs": "\\ud800"}', "application/json", 400),
        (b"[" * 9000, "application/json", 422),
        (b'{"inputs": "a"}', "text/plain", 415),
        (b'{"inputs": "a", "truncate": 1e400}', "application/json", 422),
    ],
)
def test_broken_bodies_are_the_caller_s_fault(
    client: httpx.Client, content: bytes, content_type: str, status: int
) -> None:
    found = client.post("/embed", content=content, headers={"content-type": content_type})
    assert found.status_code == status


def test_the_page_allows_its_own_parts_alone(client: httpx.Client) -> None:
    page = client.get("/", headers={"accept": "text/html"})
    assert page.headers["content-type"].startswith("text/html")
    policy = page.headers["content-security-policy"]
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy
    assert "http" not in page.text.replace("http-equiv", "")
    assert client.get("/").text == ""


def test_info_names_the_pooling_of_the_model(minilm: Path) -> None:
    cls = Embedder.from_pretrained(minilm, device="cpu", num_threads=1, pooling="cls")
    with Server(Service({"minilm": cls})) as server:
        info = httpx.get(f"{server.url}/info").json()
        body = {"inputs": "a", "normalize": True}
        tokens = httpx.post(f"{server.url}/embed_all", json=body).json()[0]
    assert info["model_type"] == {"embedding": {"pooling": "cls"}}
    assert np.array_equal(
        np.float32(tokens), cls.encode_tokens(["a"], normalize_embeddings=True)[0]
    )


def test_keys_and_hosts_are_checked(embedder: Embedder) -> None:
    keys = Keys.read("# ours\nme:secret\n")
    with (
        Server(Service({"minilm": embedder}), keys=keys) as server,
        httpx.Client(base_url=server.url) as client,
    ):
        body = {"input": "a"}
        assert client.post("/v1/embeddings", json=body).status_code == 401
        for given in ("Bearer secret", "secret"):
            found = client.post("/v1/embeddings", json=body, headers={"authorization": given})
            assert found.status_code == 200
        assert client.get("/metrics").status_code == 401
        assert client.get("/health").status_code == 200
        evil = {"host": "evil.example", "authorization": "Bearer secret"}
        assert client.get("/info", headers=evil).status_code == 403
        assert client.get("/", headers=evil).status_code == 403
        # Kubernetes sends the address of the pod.
        assert client.get("/health", headers={"host": "10.1.2.3:8080"}).status_code == 200


def test_the_command_serves_and_drains(minilm: Path) -> None:
    command = [sys.executable, "-m", "encoder_engine.cli", "serve", "-m", f"minilm={minilm}"]
    options = ["--threads", "1", "--port", "0", "--access-log", "all"]
    with subprocess.Popen(
        [*command, *options], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        try:
            begun = process.stdout.readline()
            _, url = begun.split("Serving at ")
            with httpx.Client(base_url=url.strip(), timeout=60.0) as client:
                assert client.get("/health/ready").status_code == 200
                assert len(client.post("/embed", json={"inputs": CANARY}).json()[0]) == 384
            process.send_signal(signal.SIGTERM)
            printed, log = process.communicate(timeout=60)
        finally:
            process.kill()
    assert process.returncode == 0, log
    assert CANARY not in begun + printed + log
    lines = [json.loads(line) for line in log.splitlines() if line.startswith("{")]
    assert any(line["path"] == "/embed" and line["status"] == 200 for line in lines)
