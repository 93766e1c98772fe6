"""HTTP servers of embeddings."""

from __future__ import annotations

import sys
from pathlib import Path

from benchmarks.jobs.http_servers import MODEL
from benchmarks.peers import Peer, ServingPeer


def fastapi() -> tuple[str, ...]:
    """Return the command of sentence-transformers behind FastAPI and uvicorn, as is usual."""
    module = ("-m", "benchmarks.jobs.fastapi_server")
    return (sys.executable, *module, "{directory}", "{port}", "{threads}", "{max_length}")


def infinity() -> tuple[str, ...]:
    """Return the command of infinity with its PyTorch engine, as its README starts it on a CPU."""
    program = str(Path(sys.executable).with_name("infinity_emb"))
    model = ("--model-id", "{directory}", "--served-model-name", MODEL, "--dtype", "float32")
    options = ("--device", "cpu", "--engine", "torch", "--no-bettertransformer")
    address = ("--host", "127.0.0.1", "--port", "{port}", "--url-prefix", "/v1")
    return (program, "v2", *model, *options, *address)


PEERS = (
    Peer(
        name="FastAPI",
        modules={"fastapi": "fastapi", "sentence_transformers": "sentence-transformers"},
        serving=(
            ServingPeer(
                name="sentence-transformers, FastAPI",
                command=fastapi,
                ready="/health",
                keep_slow=True,
            ),
        ),
        environment="fastapi",
        only_there=True,
    ),
    Peer(
        name="infinity",
        modules={"infinity_emb": "infinity-emb"},
        serving=(ServingPeer(name="infinity", command=infinity, ready="/health"),),
        environment="serving",
        only_there=True,
    ),
)
