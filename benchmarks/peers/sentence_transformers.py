"""sentence-transformers with its torch backend in float32, as most people embed texts today."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from benchmarks.peers import EmbeddingPeer, Peer
from benchmarks.tuning import fastest

if TYPE_CHECKING:
    from collections.abc import Callable

    from benchmarks.case import Call, EmbeddingJob, Settings

# Its default is 32; it sorts by length itself.
DEFAULT_BATCH_SIZE = 32
BATCH_SIZES = (8, 16, 32, 64)


def _load(job: EmbeddingJob) -> Callable[[int], Any]:
    import torch
    from sentence_transformers import SentenceTransformer

    torch.set_num_threads(job.threads)
    model = SentenceTransformer(job.directory, device="cpu")
    model.max_seq_length = job.max_length
    texts = list(job.texts)
    return lambda batch_size: model.encode(texts, batch_size=batch_size, show_progress_bar=False)


def build(job: EmbeddingJob, *, batch_size: int = DEFAULT_BATCH_SIZE) -> Call:
    """Load the model; a call embeds all texts."""
    encode = _load(job)
    return lambda: encode(batch_size)


def tune(job: EmbeddingJob) -> Settings:
    """Find the best batch size."""
    return {"batch_size": fastest(BATCH_SIZES, _load(job))}


PEER = Peer(
    name="sentence-transformers",
    modules={
        "sentence_transformers": "sentence-transformers",
        "transformers": "transformers",
        "tokenizers": "tokenizers",
    },
    embedding=(
        EmbeddingPeer(name="sentence-transformers", build=build),
        EmbeddingPeer(name="sentence-transformers tuned", build=build, tune=tune),
    ),
)
