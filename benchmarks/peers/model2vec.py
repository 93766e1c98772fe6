"""model2vec: static embeddings by Hugging Face tokenizers and NumPy."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from benchmarks.peers import Peer

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

PEER = Peer(
    name="model2vec",
    modules={"model2vec": "model2vec", "tokenizers": "tokenizers"},
)
PEERS = (PEER,)
# Its default.
BATCH_SIZE = 1024


def build(directory: str, texts: Sequence[str], threads: int) -> Callable[[], Any]:
    """Load a static model; a call embeds all texts, with so many threads of the tokenizer."""
    # Read when the tokenizer's pool is made, at its first batch.
    os.environ["RAYON_NUM_THREADS"] = str(threads)
    os.environ["TOKENIZERS_PARALLELISM"] = "true" if threads > 1 else "false"
    from model2vec import StaticModel

    model = StaticModel.from_pretrained(directory)
    every = list(texts)
    return lambda: model.encode(every, batch_size=BATCH_SIZE, use_multiprocessing=False)
