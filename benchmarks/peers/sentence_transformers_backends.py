"""sentence-transformers with its other CPU backends, as its documentation recommends."""

from __future__ import annotations

from functools import partial

from benchmarks.peers import EmbeddingPeer, Peer
from benchmarks.peers.sentence_transformers import BATCH_SIZES, Backend, load

BACKENDS: tuple[Backend, ...] = ("onnx", "openvino")

PEER = Peer(
    name="sentence-transformers 5",
    modules={"sentence_transformers": "sentence-transformers", "optimum": "optimum"},
    embedding=tuple(
        EmbeddingPeer(
            name=f"sentence-transformers {backend}",
            load=partial(load, backend=backend),
            batch_sizes=BATCH_SIZES,
            precisions=frozenset({"float32", "bfloat16"}),
        )
        for backend in BACKENDS
    ),
    environment="embedding",
    only_there=True,
)
