"""tokie: a tokenizer in Rust; its offsets are bytes of the normalized text."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from benchmarks.jobs.tokenizing import (
    Way,
    list_rows,
    matrix_rows,
    offset_rows,
    packed_rows,
    with_template,
)
from benchmarks.peers import Peer, TokenizerPeer
from benchmarks.peers.tokenizers import pad_token

if TYPE_CHECKING:
    from benchmarks.jobs.tokenizing import Rows, TokenizerJob, Ways


def load(job: TokenizerJob) -> Ways:
    """Load the file."""
    import tokie

    # Its stub lacks encode_batch_flat.
    tokenizer: Any = tokie.Tokenizer.from_json(job.file)
    # With Unigram it leaves out the template's last token: it is held to the others, without any.
    whole = job.pieces is None
    if job.form == "matrix":
        tokenizer.enable_truncation(job.max_length)
        tokenizer.enable_padding(length=job.max_length, pad_id=pad_token(job)["pad_id"])

    def sentence(texts: list[str]) -> Any:
        for text in texts:
            ids, _ = tokenizer.encode_batch_flat([text], whole)
        return ids

    def rows(found: Any) -> Rows:
        return list_rows(found) if whole else with_template(job, found)

    def matrix(texts: list[str]) -> Any:
        rows = tokenizer.encode_batch(texts)
        return (
            np.array([row.ids for row in rows]),
            np.array([row.attention_mask for row in rows]),
        )

    def offsets(texts: list[str]) -> Any:
        rows = [tokenizer.encode_with_offsets(text) for text in texts]
        return [row.ids for row in rows], [row.offsets for row in rows]

    def packed(found: Any) -> Any:
        ids, lengths = found
        return rows(packed_rows(ids, np.concatenate([[0], np.cumsum(lengths)])))

    return {
        "arrays": Way(call=lambda texts: tokenizer.encode_batch_flat(texts, whole), rows=packed),
        "lists": Way(
            call=lambda texts: [row.ids for row in tokenizer.encode_batch(texts, whole)], rows=rows
        ),
        "sentence": Way(call=sentence, rows=lambda ids: rows([ids])),
        "matrix": Way(call=matrix, rows=matrix_rows),
        "offsets": Way(call=offsets, rows=lambda found: offset_rows(*found)),
    }


PEER = Peer(
    name="tokie",
    modules={"tokie": "tokie"},
    tokenizing=TokenizerPeer(
        load=load, forms=frozenset({"arrays", "lists", "sentence", "matrix", "offsets"})
    ),
    environment="tokenizers",
)
