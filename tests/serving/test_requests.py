"""No field of a request is ignored, and limits hold for every route."""

from __future__ import annotations

import io
import json
import threading
import time
from typing import TYPE_CHECKING, Any

import httpx
import numpy as np
import pytest

from encoder_engine.embedding import Ranker
from encoder_engine.errors import NonFiniteVectorError
from encoder_engine.models import SequenceClassification
from encoder_engine.serving.http.access import AccessLog
from encoder_engine.serving.http.guard import Keys, Limits
from encoder_engine.serving.models import ServedModel
from encoder_engine.serving.options import ServingOptions
from encoder_engine.serving.server import Server
from encoder_engine.serving.service import Service
from tests.embedding.tiny_model import write_head_directory

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from encoder_engine.embedding import Embedder
    from tests.serving.conftest import Gate

pytestmark = pytest.mark.slow
CANARY = "xylophonecanary"


@pytest.fixture(scope="module")
def client(tiny: Embedder) -> Iterator[httpx.Client]:
    service = Service({"tiny": tiny}, ServingOptions(truncation="refuse", max_answer_bytes=100_000))
    limits = Limits(allowed_hosts=("Example.ORG",))
    with (
        Server(service, limits=limits, cors_origins=("http://page.example",)) as server,
        httpx.Client(base_url=server.url) as found,
    ):
        yield found


@pytest.mark.parametrize(
    ("path", "body", "status", "message"),
    [
        ("/v1/embeddings", {"input": "a", "inputtype": "query"}, 400, "did you mean 'input_type'"),
        ("/v1/embeddings", {"input": "a", "user": "me", "metadata": {"a": "b"}}, 200, ""),
        ("/v1/embeddings", {"input": "a", CANARY * 4: 1}, 400, "unknown field; there are"),
        ("/embed", {"inputs": "a", "normalise": False}, 422, "did you mean 'normalize'"),
        ("/embed", {"inputs": "words " * 60, "truncate": True}, 200, ""),
        ("/embed", {"inputs": "words " * 60}, 422, "more tokens than the model takes"),
        ("/embed", {"inputs": "words " * 60, "truncate": False}, 422, "more tokens"),
        ("/decode", {"ids": [-1]}, 422, ">= 0"),
        ("/decode", {"ids": [10**30]}, 422, "ids"),
        ("/decode", {"ids": [2_000_000_000]}, 422, ""),
        ("/decode", {"ids": [[5, 6], 7]}, 422, "send them separately"),
        ("/tokenize", {"inputs": "ab " * 5000}, 422, "the answer would have"),
        ("/decode", {"ids": [5] * 20_000}, 422, "the answer would have"),
        ("/rerank", {"query": "a", "texts": ['"documents"']}, 424, "no task 'rank'"),
        ("/rerank", {"query": "a", "documents": ['"texts"']}, 424, "no task 'rank'"),
        ("/rerank", [1], 422, "Expected `object`"),
        ("/rerank", {"query": "a"}, 422, "texts"),
        ("/", {"inputs": {"source_sentence": "a", "sentences": ["a"]}}, 200, "1.0"),
        ("/", {"inputs": ["a"]}, 200, ""),
        ("/invocations", {}, 422, "inputs"),
    ],
)
def test_fields_are_read_or_refused(
    client: httpx.Client, path: str, body: Any, status: int, message: str
) -> None:
    found = client.post(path, json=body)
    assert (found.status_code, message in found.text) == (status, True), found.text
    assert CANARY not in found.text


def test_token_ids_are_taken_where_the_server_accepts_them(tiny: Embedder) -> None:
    texts = ["the row", "a text, of words"]
    ids = [tiny.tokenizer.encode(text).tolist() for text in texts]
    with (
        Server(Service({"tiny": tiny}, ServingOptions(accept_token_ids=True))) as server,
        httpx.Client(base_url=server.url) as client,
    ):

        def ask(given: Any, **more: Any) -> httpx.Response:
            return client.post("/v1/embeddings", json={"input": given} | more)

        for given, expected in ((ids, tiny.encode(texts)), (ids[1], tiny.encode(texts[1:]))):
            found = [row["embedding"] for row in ask(given).json()["data"]]
            assert np.array_equal(np.array(found, dtype=np.float32), expected)
        assert ask(ids).headers["x-compute-tokens"] == str(sum(map(len, ids)))
        wrongs: list[Any] = [[[]], [[5, 1_000_000]], [[-1]], ["a", 5], [[5], 5], [], [[1.5]]]
        for wrong in wrongs:
            assert ask(wrong).status_code == 400, wrong
        assert "text 0 has a token id outside 0.." in ask([[5, 1_000_000]]).text
        assert "context_length_exceeded" in ask([[5] * 40]).text
        assert "prompt" in ask(ids, prompt_name="query").text


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"host": "example.org"}, 200),
        ({"host": "EXAMPLE.org:80"}, 200),
        ({"host": "example.org.evil"}, 403),
        ({"x-request-timeout-ms": "9" * 5000}, 400),
        ({"x-request-timeout-ms": "0"}, 400),
        ({"x-request-timeout-ms": "²"}, 400),
        ({"x-request-timeout-ms": "60000"}, 200),
    ],
)
def test_headers_are_bounded(client: httpx.Client, headers: dict[str, str], status: int) -> None:
    encoded = [(name.encode(), value.encode()) for name, value in headers.items()]
    found = client.post("/v1/embeddings", json={"input": "a"}, headers=encoded)
    assert found.status_code == status


def test_pages_read_what_answers_say_in_headers(client: httpx.Client) -> None:
    found = client.post("/embed", json={"inputs": "a"}, headers={"origin": "http://page.example"})
    assert "x-truncated" in found.headers["access-control-expose-headers"]
    assert found.headers["x-compute-characters"] == "1"


def test_an_array_is_sent_to_those_who_accept_it(client: httpx.Client, tiny: Embedder) -> None:
    texts = [f"the row {n}" for n in range(100)]
    headers = {"accept": "application/x-npy"}
    found = client.post("/embed", json={"inputs": texts}, headers=headers)
    assert found.headers["content-type"] == "application/x-npy"
    assert np.array_equal(np.load(io.BytesIO(found.content)), tiny.encode(texts))


def test_long_answers_come_in_pieces(tiny: Embedder) -> None:
    texts = [f"the row {n}" for n in range(2000)]
    expected = tiny.encode_tokens(texts)
    with Server(Service({"tiny": tiny})) as server:
        found = httpx.post(f"{server.url}/embed_all", json={"inputs": texts}, timeout=60.0)
        assert found.headers["transfer-encoding"] == "chunked"
        for row, vectors in enumerate(found.json()):
            assert np.array_equal(np.float32(vectors), expected[row])
        for form in ("float", "base64"):
            body = {"input": texts, "encoding_format": form}
            found = httpx.post(f"{server.url}/v1/embeddings", json=body, timeout=60.0)
            assert [item["index"] for item in found.json()["data"]] == list(range(2000))
        headers = {"x-request-id": "mine"}
        found = httpx.head(f"{server.url}/health", headers=headers)
        assert (found.status_code, found.headers["x-request-id"]) == (200, "mine")


def test_a_tokenizer_holds_no_other_request_up(
    tiny: Embedder, monkeypatch: pytest.MonkeyPatch
) -> None:
    from encoder_engine.serving.http import tokens

    begun, go_on = threading.Event(), threading.Event()

    def slow(*_: Any, **__: Any) -> bytes:
        begun.set()
        go_on.wait(10.0)
        return b"[]"

    monkeypatch.setattr(tokens, "_tokens", slow)
    with Server(Service({"tiny": tiny})) as server:
        first = threading.Thread(
            target=httpx.post, args=(f"{server.url}/tokenize",), kwargs={"json": {"inputs": "a"}}
        )
        first.start()
        assert begun.wait(5.0)
        assert httpx.post(f"{server.url}/embed", json={"inputs": "a"}).status_code == 200
        late = httpx.post(
            f"{server.url}/tokenize", json={"inputs": "a"}, headers={"x-request-timeout-ms": "50"}
        )
        assert late.status_code == 504
        go_on.set()
        first.join()


def test_bodies_reserve_their_room(tiny: Embedder, gate: Gate) -> None:
    """The room of all bodies is reserved by the sizes that requests state, until their answers."""
    limits = Limits(max_body_bytes=2000, max_bodies_bytes=3000, body_timeout=0.3)
    with Server(Service({"tiny": tiny}), limits=limits) as server:
        url = f"{server.url}/embed"
        body = json.dumps({"inputs": "a " * 900}).encode()
        headers = {"content-type": "application/json"}
        gate.close()
        found: list[int] = []
        threads = [
            threading.Thread(
                target=lambda: found.append(
                    httpx.post(url, content=body, headers=headers, timeout=30.0).status_code
                )
            )
            for _ in range(2)
        ]
        for thread in threads:
            thread.start()
        until = time.monotonic() + 60.0
        while not found and time.monotonic() < until:
            time.sleep(0.01)
        assert found == [429]
        gate.open()
        for thread in threads:
            thread.join()
        assert sorted(found) == [200, 429]


def test_one_bad_text_among_64_clients(tiny: Embedder, monkeypatch: pytest.MonkeyPatch) -> None:
    compute = ServedModel.compute

    def failing(self: ServedModel, task: Any, rows: Any, options: Any) -> Any:
        time.sleep(0.02)
        bad = np.flatnonzero(rows.lengths == 7)
        if len(bad):
            raise NonFiniteVectorError("NaN in the results", rows=bad.tolist())
        return compute(self, task, rows, options)

    texts = [f"the row {chr(97 + n % 26)}" for n in range(64)]
    expected = tiny.encode(texts)
    texts[40] = "the text row of"
    found: list[Any] = [None] * len(texts)
    with Server(Service({"tiny": tiny})) as server:
        monkeypatch.setattr(ServedModel, "compute", failing)

        def ask(number: int) -> None:
            body = {"input": texts[number]}
            found[number] = httpx.post(f"{server.url}/v1/embeddings", json=body, timeout=30.0)

        threads = [threading.Thread(target=ask, args=(number,)) for number in range(64)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert len(tiny.tokenizer.encode("the text row of")) == 7
    for number, response in enumerate(found):
        if number == 40:
            assert response.status_code == 500
            assert "text 0: the model's numbers overflow" in response.text
        else:
            vector = response.json()["data"][0]["embedding"]
            assert np.array_equal(np.float32(vector), expected[number])


def test_a_text_is_in_no_log_metric_or_error(
    tiny: Embedder, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    log = io.StringIO()
    keys = Keys.read("me:secret\n")
    headers = {"authorization": "Bearer secret"}
    answers = []
    with Server(
        Service({"tiny": tiny}), keys=keys, access_log=AccessLog("all", stream=log)
    ) as server:
        for path, body in (
            ("/embed", {"inputs": CANARY}),
            ("/embed", {"inputs": CANARY, "prompt_name": CANARY}),
            ("/embed", {"inputs": [CANARY, 3]}),
            ("/embed", {"inputs": CANARY, "truncation_direction": CANARY}),
            ("/embed", {"inputs": f"{CANARY}\ud800"}),
            ("/tokenize", {"inputs": "a", "prompt_name": CANARY}),
            ("/v1/embeddings", {"input": CANARY, "model": CANARY}),
            (f"/{CANARY}", {"input": CANARY}),
            (f"/embed?{CANARY}", {"inputs": CANARY}),
        ):
            content = json.dumps(body).encode()
            sent = headers | {"content-type": "application/json"}
            answers.append(httpx.post(server.url + path, content=content, headers=sent).text)
        answers.append(httpx.get(f"{server.url}/{CANARY}", headers=headers).text)

        def fail(*_: object) -> None:
            raise ValueError(f"cannot compute {CANARY}")

        monkeypatch.setattr(ServedModel, "compute", fail)
        failed = httpx.post(f"{server.url}/embed", json={"inputs": CANARY}, headers=headers)
        assert failed.status_code == 424
        answers.append(httpx.get(f"{server.url}/metrics", headers=headers).text)
    logged = log.getvalue()
    # The client's own library logs its addresses.
    own = "".join(record.getMessage() for record in caplog.records if "http" not in record.name)
    assert '"client":"me"' in logged
    assert '"path":"other"' in logged
    assert "ValueError" in logged
    assert CANARY not in logged + "".join(answers[:-1]) + failed.text + own
    assert CANARY not in answers[-1]


def test_metrics_are_those_that_the_documents_name(client: httpx.Client) -> None:
    client.post("/embed", json={"inputs": "a"})
    found = client.get("/metrics").text
    for name in (
        "requests_total",
        "request_seconds_bucket",
        "refusal_seconds_bucket",
        "queue_seconds_count",
        "tokenize_seconds_sum",
        "compute_seconds_bucket",
        "batch_tokens_bucket",
        "batch_texts_bucket",
        "texts_total",
        "tokens_total",
        "truncated_texts_total",
        "lane_busy_seconds_total",
        "queued_texts",
        "queued_tokens",
        "queued_bytes",
        "tokens_per_second",
        "build_info",
    ):
        assert f"encoder_engine_{name}" in found
    assert "encoder_engine_connections 1.0" in found
    assert 'encoder_engine_requests_total{client="",code="200",route="/embed"}' in found
    for name in ("rejected", "cancelled", "batch_failures"):
        assert f"# TYPE encoder_engine_{name}_total counter" in found


def test_a_ranker_answers_as_cohere_and_as_tei(tmp_path: Path) -> None:
    write_head_directory(tmp_path, SequenceClassification, num_labels=1)
    ranker = Ranker.from_pretrained(tmp_path, device="cpu", num_threads=1)
    texts = ['"documents"', "the row", "words passage"]
    scores = ranker.score([("the", text) for text in texts])
    best = np.argsort(-scores, kind="stable").tolist()
    with Server(Service({"ranker": ranker})) as server, httpx.Client(base_url=server.url) as client:
        found = client.post("/rerank", json={"query": "the", "texts": texts}).json()
        assert [row["index"] for row in found] == best
        body = {"query": "the", "documents": [{"text": text, "id": 1} for text in texts]}
        for path in ("/rerank", "/v1/rerank", "/v2/rerank"):
            rows = client.post(path, json=body | {"top_n": 2}).json()["results"]
            assert [row["index"] for row in rows] == best[:2]
            assert np.float32(rows[0]["relevance_score"]) == scores[best[0]]
        assert "reranker" in client.get("/info").json()["model_type"]
        refused = client.post("/v2/rerank", json=body | {"max_chunks_per_doc": 9})
        assert refused.status_code == 400
        long = ["the row", "the row, of text words", "Row The"]
        limited = {"query": "the", "documents": long, "max_tokens_per_doc": 2}
        found = client.post("/v2/rerank", json=limited | {"return_documents": True})
        assert found.headers["x-truncated"] == "1"
        by_index = {row["index"]: row for row in found.json()["results"]}
        assert by_index[1]["document"]["text"] == long[1]
        expected = ranker.score([("the", text) for text in ("the row", "the row", "Row The")])
        for index, score in enumerate(expected):
            assert np.float32(by_index[index]["relevance_score"]) == score
        assert client.post("/", json={"inputs": [["the", "row"]]}).status_code == 200
