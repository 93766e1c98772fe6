"""tokenizers 1.0, a pre-release of the rewrite: without offsets and word ids."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from benchmarks.jobs.tokenizing import Way, list_rows, matrix_rows, one_row
from benchmarks.peers import Peer, TokenizerPeer
from benchmarks.peers.tokenizers import pad_token

if TYPE_CHECKING:
    from benchmarks.jobs.tokenizing import TokenizerJob, Ways


def load(job: TokenizerJob) -> Ways:
    """Load the file."""
    import tokenizers

    # Its types are those of another version than the one that is checked here.
    library: Any = tokenizers
    tokenizer = library.Tokenizer.from_file(job.file)
    encode = tokenizer.encode_batch
    if job.form == "matrix":
        tokenizer.truncation = library.Truncation(max_length=job.max_length)
        tokenizer.padding = library.Padding(length=job.max_length, **pad_token(job))

    def sentence(texts: list[str]) -> Any:
        for text in texts:
            ids = tokenizer.encode(text).ids_array
        return ids

    def matrix(texts: list[str]) -> Any:
        rows = encode(texts)
        return (
            np.stack([row.ids_array for row in rows]),
            np.stack([row.attention_mask_array for row in rows]),
        )

    return {
        "arrays": Way(call=lambda texts: [row.ids_array for row in encode(texts)], rows=list_rows),
        "lists": Way(call=lambda texts: [row.ids for row in encode(texts)], rows=list_rows),
        "sentence": Way(call=sentence, rows=one_row),
        "matrix": Way(call=matrix, rows=matrix_rows),
    }


PEER = Peer(
    name="tokenizers 1.0",
    modules={"tokenizers": "tokenizers"},
    tokenizing=TokenizerPeer(load=load, forms=frozenset({"arrays", "lists", "sentence", "matrix"})),
    environment="tokenizers-1",
    only_there=True,
)
