"""HTTP servers of embeddings: infinity with its PyTorch engine, as its README starts it."""

from __future__ import annotations

from benchmarks.jobs.http_servers import MODEL
from benchmarks.peers import Peer

# The program lies beside the interpreter of its environment.
COMMAND = (
    *("infinity_emb", "v2", "--model-id", "{directory}", "--served-model-name", MODEL),
    *("--dtype", "float32", "--device", "cpu", "--engine", "torch", "--no-bettertransformer"),
    *("--host", "127.0.0.1", "--port", "{port}", "--url-prefix", "/v1"),
)
INFINITY = Peer(
    name="infinity",
    modules={"infinity_emb": "infinity-emb"},
    environment="serving",
    only_there=True,
)
PEERS = (INFINITY,)
