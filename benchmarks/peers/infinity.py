"""infinity with its PyTorch engine, the server of embeddings that Python's registry has."""

from __future__ import annotations

import sys
from pathlib import Path

from benchmarks.jobs.http_servers import MODEL
from benchmarks.peers import Peer, ServingPeer


def command() -> tuple[str, ...]:
    """Return the command of its server, as its README starts it on a CPU."""
    program = str(Path(sys.executable).with_name("infinity_emb"))
    model = ("--model-id", "{directory}", "--served-model-name", MODEL, "--dtype", "float32")
    options = ("--device", "cpu", "--engine", "torch", "--no-bettertransformer")
    address = ("--host", "127.0.0.1", "--port", "{port}", "--url-prefix", "/v1")
    return (program, "v2", *model, *options, *address)


PEER = Peer(
    name="infinity",
    modules={"infinity_emb": "infinity-emb"},
    serving=(ServingPeer(name="infinity", command=command, ready="/health"),),
    environment="serving",
    only_there=True,
)
