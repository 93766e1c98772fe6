"""splintr: a tokenizer in Rust, ids only."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from benchmarks.jobs.tokenizing import Way, list_rows, one_row, packed_rows
from benchmarks.peers import Peer, TokenizerPeer

if TYPE_CHECKING:
    from benchmarks.jobs.tokenizing import TokenizerJob, Ways


def load(job: TokenizerJob) -> Ways:
    """Load the file."""
    import splintr

    tokenizer = splintr.from_json(job.file)

    def sentence(texts: list[str]) -> Any:
        for text in texts:
            ids = tokenizer.encode(text)
        return ids

    def arrays(texts: list[str]) -> Any:
        ids, starts = tokenizer.encode_batch_flat(texts)
        return np.frombuffer(ids, dtype=np.uint32), np.frombuffer(starts, dtype=np.uint64)

    return {
        "arrays": Way(call=arrays, rows=lambda packed: packed_rows(*packed)),
        "lists": Way(call=tokenizer.encode_batch, rows=list_rows),
        "sentence": Way(call=sentence, rows=one_row),
    }


PEER = Peer(
    name="splintr",
    modules={"splintr": "splintr-rs"},
    tokenizing=TokenizerPeer(load=load, forms=frozenset({"arrays", "lists", "sentence"})),
    environment="tokenizers",
)
