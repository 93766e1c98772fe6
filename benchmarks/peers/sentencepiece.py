"""sentencepiece: Unigram as it was first written; it reads a .model and knows no template."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from benchmarks.jobs.tokenizing import Way, with_template
from benchmarks.peers import Peer, TokenizerPeer

if TYPE_CHECKING:
    from collections.abc import Sequence

    from benchmarks.jobs.tokenizing import PieceFile, Rows, TokenizerJob, Ways


def load(job: TokenizerJob) -> Ways:
    """Load the .model; only the gate translates its ids and adds the template's."""
    import sentencepiece

    pieces = job.pieces
    assert pieces is not None
    processor: Any = sentencepiece.SentencePieceProcessor(model_file=pieces.path)
    threads = job.threads

    def sentence(texts: list[str]) -> Any:
        for text in texts:
            ids = processor.encode(text)
        return ids

    def rows(found: Sequence[Any]) -> Rows:
        return with_template(job, [translate(pieces, ids) for ids in found])

    return {
        "arrays": Way(
            call=lambda texts: processor.encode(texts, return_type="numpy", num_threads=threads),
            rows=rows,
        ),
        "lists": Way(call=lambda texts: processor.encode(texts, num_threads=threads), rows=rows),
        "sentence": Way(call=sentence, rows=lambda ids: rows([ids])),
    }


def translate(pieces: PieceFile, ids: Any) -> list[int]:
    """Map a model's ids to those of the tokenizer.json."""
    return [pieces.ids.get(int(number), int(number) + pieces.shift) for number in np.asarray(ids)]


PEER = Peer(
    name="sentencepiece",
    modules={"sentencepiece": "sentencepiece"},
    tokenizing=TokenizerPeer(
        load=load, forms=frozenset({"arrays", "lists", "sentence"}), by_pieces=True
    ),
    environment="tokenizers",
)
