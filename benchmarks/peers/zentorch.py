"""zentorch: AMD's backend of torch.compile for processors."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from benchmarks.peers import EmbeddingPeer, Peer
from benchmarks.peers.torch_compile import BATCH_SIZES
from benchmarks.peers.torch_compile import load as compile_by

if TYPE_CHECKING:
    from collections.abc import Callable

    from benchmarks.measuring.case import EmbeddingJob


def load(job: EmbeddingJob) -> Callable[[int], Any]:
    """Compile the model; the result embeds all texts in batches of a given size."""
    import zentorch  # noqa: F401

    return compile_by(job, backend="zentorch")


PEER = Peer(
    name="zentorch",
    modules={"zentorch": "zentorch"},
    embedding=(
        EmbeddingPeer(
            name="zentorch",
            load=load,
            batch_sizes=BATCH_SIZES,
            precisions=frozenset({"float32", "bfloat16"}),
            compiled=True,
        ),
    ),
    environment="embedding",
    only_there=True,
)
