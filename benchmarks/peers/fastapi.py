"""sentence-transformers behind FastAPI and uvicorn, as most people serve texts today."""

from __future__ import annotations

import sys

from benchmarks.peers import Peer, ServingPeer


def command() -> tuple[str, ...]:
    """Return the command of the server."""
    module = ("-m", "benchmarks.jobs.fastapi_server")
    return (sys.executable, *module, "{directory}", "{port}", "{threads}", "{max_length}")


PEER = Peer(
    name="FastAPI",
    modules={"fastapi": "fastapi", "sentence_transformers": "sentence-transformers"},
    serving=(
        ServingPeer(
            name="sentence-transformers, FastAPI",
            command=command,
            ready="/health",
            keep_slow=True,
        ),
    ),
    environment="fastapi",
    only_there=True,
)
