"""tokenizers 0.23: its ids and offsets are the reference for all other candidates."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from benchmarks.jobs.tokenizing import Way, list_rows, matrix_rows, offset_rows, one_row
from benchmarks.peers import Peer, TokenizerPeer

if TYPE_CHECKING:
    from benchmarks.jobs.tokenizing import TokenizerJob, Ways


def load(job: TokenizerJob) -> Ways:
    """Load the file."""
    from tokenizers import Tokenizer

    tokenizer = Tokenizer.from_file(job.file)
    if job.form == "matrix":
        tokenizer.enable_truncation(job.max_length)
        tokenizer.enable_padding(length=job.max_length, **pad_token(job))
    # The fast way leaves offsets out.
    encode = tokenizer.encode_batch_fast

    def sentence(texts: list[str]) -> Any:
        for text in texts:
            ids = tokenizer.encode(text).ids
        return ids

    def matrix(texts: list[str]) -> Any:
        rows = encode(texts)
        return (
            np.array([row.ids for row in rows]),
            np.array([row.attention_mask for row in rows]),
        )

    def offsets(texts: list[str]) -> Any:
        rows = tokenizer.encode_batch(texts)
        return [row.ids for row in rows], [row.offsets for row in rows]

    return {
        "arrays": Way(
            call=lambda texts: [np.array(row.ids, dtype=np.uint32) for row in encode(texts)],
            rows=list_rows,
        ),
        "lists": Way(call=lambda texts: [row.ids for row in encode(texts)], rows=list_rows),
        "sentence": Way(call=sentence, rows=one_row),
        "matrix": Way(call=matrix, rows=matrix_rows),
        "offsets": Way(call=offsets, rows=lambda found: offset_rows(*found)),
    }


def pad_token(job: TokenizerJob) -> dict[str, Any]:
    """Find the padding token in the file, as the libraries' options name it."""
    added = json.loads(Path(job.file).read_text(encoding="utf-8"))["added_tokens"]
    return next(
        {"pad_id": token["id"], "pad_token": token["content"]}
        for token in added
        if token["content"] in ("[PAD]", "<pad>")
    )


PEER = Peer(
    name="tokenizers",
    modules={"tokenizers": "tokenizers"},
    tokenizing=TokenizerPeer(
        load=load, forms=frozenset({"arrays", "lists", "sentence", "matrix", "offsets"})
    ),
    environment="tokenizers",
)
