"""transformers under torch.compile, by inductor (also with torchao's dynamic int8) or zentorch."""

from __future__ import annotations

import importlib
from functools import partial
from typing import TYPE_CHECKING, Any

from benchmarks.jobs.padded import embed_sorted, pooled_module
from benchmarks.peers import EmbeddingPeer, embedding_library

if TYPE_CHECKING:
    from collections.abc import Callable

    from benchmarks.measuring.case import EmbeddingJob

# Every shape is compiled once, for any batch and length; more sizes to try take minutes.
BATCH_SIZES = (8, 32)


def load(job: EmbeddingJob, *, backend: str = "inductor") -> Callable[[int], Any]:
    """Load and compile the model; return a function from a batch size to the texts' vectors."""
    import torch

    if backend != "inductor":
        importlib.import_module(backend)
    torch._inductor.config.freezing = True
    module = pooled_module(job, "float32" if job.precision == "int8" else job.precision)
    if job.precision == "int8":
        from torchao.quantization import Int8DynamicActivationInt8WeightConfig, quantize_

        quantize_(module, Int8DynamicActivationInt8WeightConfig())
    compiled: Any = torch.compile(module, backend=backend, dynamic=True)

    def embed(ids: Any, mask: Any) -> Any:
        with torch.inference_mode():
            return compiled(torch.from_numpy(ids), torch.from_numpy(mask)).float().numpy()

    return embed_sorted(job, embed)


def _way(name: str, *precisions: str, backend: str = "inductor") -> EmbeddingPeer:
    return EmbeddingPeer(
        name=name,
        load=partial(load, backend=backend),
        batch_sizes=BATCH_SIZES,
        precisions=frozenset(precisions),
        compiled=True,
    )


PEERS = (
    embedding_library(
        "torch.compile",
        {"transformers": "transformers", "torchao": "torchao"},
        _way("torch.compile", "float32", "bfloat16"),
        _way("torchao, compiled", "int8"),
    ),
    embedding_library(
        "zentorch",
        {"zentorch": "zentorch"},
        _way("zentorch", "float32", "bfloat16", backend="zentorch"),
    ),
)
