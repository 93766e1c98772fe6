"""JAX: a compiled training step of BERT, written with its own operations."""

from __future__ import annotations

from benchmarks.peers import Peer

PEER = Peer(
    name="JAX",
    modules={"jax": "jax", "safetensors": "safetensors"},
    environment="jax",
    only_there=True,
)
PEERS = (PEER,)
