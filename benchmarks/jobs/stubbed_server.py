"""Serves fixed vectors: what a request costs a server beside its model.

``python -m benchmarks.jobs.stubbed_server --directory D --port P`` runs this project's server with
a model whose lanes return the same vectors every time. ``--bare BYTES`` instead runs uvicorn with
an ASGI application that reads the request and answers a fixed body of that size.
"""

from __future__ import annotations

import argparse
from typing import Any

import numpy as np
import uvicorn

from encoder_engine.embedding import Embedder
from encoder_engine.serving.models import ServedModel
from encoder_engine.serving.server import run_server
from encoder_engine.serving.service import Service

SEED, MOST_TEXTS = 1, 4096


def serve_stub(directory: str, port: int) -> None:
    """Serve the model of a directory, whose computation is replaced when it has started."""
    embedder = Embedder.from_pretrained(directory, device="cpu", num_threads=1)
    drawn = np.random.default_rng(SEED).standard_normal((MOST_TEXTS, embedder.dimension))
    vectors = (drawn / np.linalg.norm(drawn, axis=1, keepdims=True)).astype(np.float32)

    def compute(_model: ServedModel, _task: Any, rows: Any, _options: Any) -> Any:
        return vectors[: len(rows)]

    def begin(_: str) -> None:
        ServedModel.compute = compute  # type: ignore[assignment,method-assign]

    run_server(Service({"minilm": embedder}), host="127.0.0.1", port=port, ready=begin)


def serve_bare(num_bytes: int, port: int) -> None:
    """Serve a body of so many bytes."""
    body = b"1" * num_bytes
    start = {
        "type": "http.response.start",
        "status": 200,
        "headers": [
            (b"content-type", b"application/json"),
            (b"content-length", str(num_bytes).encode()),
        ],
    }

    async def answer(scope: Any, receive: Any, send: Any) -> None:
        more = scope["type"] == "http"
        while more:
            more = (await receive()).get("more_body", False)
        await send(start)
        await send({"type": "http.response.body", "body": body})

    uvicorn.run(
        answer,
        port=port,
        lifespan="off",
        log_config=None,
        access_log=False,
        proxy_headers=False,
        server_header=False,
    )


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--directory")
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--bare", type=int)
    given = parser.parse_args()
    if given.bare is None:
        serve_stub(given.directory, given.port)
    else:
        serve_bare(given.bare, given.port)
