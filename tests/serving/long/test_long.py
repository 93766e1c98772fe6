"""The long runs of the server, shortened."""

from __future__ import annotations

import json
import random
from typing import TYPE_CHECKING

import pytest

from tests.embedding.tiny_model import write_sentence_directory
from tests.serving.clients.run import clients_folder
from tests.serving.long import mutations, openapi, requests, slow_clients

if TYPE_CHECKING:
    from pathlib import Path

SCHEMATHESIS = clients_folder() / "schemathesis" / "bin" / "schemathesis"


@pytest.mark.exhaustive
def test_drawn_requests_get_answers_as_documented() -> None:
    if not SCHEMATHESIS.is_file():
        pytest.skip("python -m tests.serving.clients.run schemathesis makes its environment")
    assert openapi.main(cases=300, seed=1) >= 300


@pytest.mark.slow
def test_mutated_requests_leave_nothing_behind() -> None:
    found = mutations.main(cases=300, seconds=60.0, seed=3)
    assert found.num_cases == 300
    assert found.num_others > 0
    assert {200, 400} <= set(found.statuses)


@pytest.mark.parametrize(
    ("received", "expected"),
    [
        (b"", []),
        (b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nabHTTP/1.1 404 Not", [200]),
        (b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 400 Bad\r\ncontent-length: 0\r\n\r\n", [100, 400]),
        (b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n1\r\na\r\n0\r\n\r\nHTT", [200]),
    ],
)
def test_answers_are_told_apart(received: bytes, expected: list[int]) -> None:
    assert mutations.statuses_of(received) == expected


def test_bytes_that_are_no_answer_are_found() -> None:
    with pytest.raises(AssertionError):
        mutations.statuses_of(b"HTTP/1.1 200 OK\r\ncontent-length: 1\r\n\r\nabHTTP/1.1 200 OK\r\n")


def test_most_requests_of_the_memory_run_are_right() -> None:
    draw, right = random.Random(1), 0
    for _ in range(500):
        head, body = requests.request(draw).split(b"\r\n\r\n", 1)
        try:
            right += b"/v1/embeddings" in head and "model" not in json.loads(body)
        except ValueError:
            assert b"content-length: %d" % len(body) in head
    assert 350 < right < 500


@pytest.mark.exhaustive
def test_some_requests_do_not_grow_the_server(tmp_path: Path) -> None:
    directory = write_sentence_directory(tmp_path)
    # The first half warms up: the heap still grows by some MiB over the first 35,000.
    requests.main(directory=directory, fake=True, requests=100_000, seed=1, seconds=300.0)


@pytest.mark.exhaustive
def test_slow_clients_are_dropped_and_others_are_answered() -> None:
    connections = 300
    seconds = connections / slow_clients.BEGIN + 14.0
    alone, beside, dropped = slow_clients.main(connections=connections, seconds=seconds)
    assert len(alone) > 0
    assert len(beside) > 0
    # Those whose headers take longer than 10 seconds, also of the last to begin; bodies have 30.
    assert dropped >= 100
