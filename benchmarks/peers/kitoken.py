"""kitoken: a tokenizer in Rust, lists of ids only; it sets no template's tokens."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from benchmarks.jobs.tokenizing import Way, with_template
from benchmarks.peers import Peer, TokenizerPeer

if TYPE_CHECKING:
    from benchmarks.jobs.tokenizing import Rows, TokenizerJob, Ways


def load(job: TokenizerJob) -> Ways:
    """Load the file."""
    import kitoken

    tokenizer = kitoken.Kitoken.from_tokenizers_file(job.file)

    def sentence(texts: list[str]) -> Any:
        for text in texts:
            ids = tokenizer.encode(text, True)
        return ids

    def rows(found: list[list[int]]) -> Rows:
        return with_template(job, found)

    return {
        "lists": Way(call=lambda texts: tokenizer.encode_all(texts, True), rows=rows),
        "sentence": Way(call=sentence, rows=lambda ids: rows([ids])),
    }


PEER = Peer(
    name="kitoken",
    modules={"kitoken": "kitoken"},
    tokenizing=TokenizerPeer(load=load, forms=frozenset({"lists", "sentence"})),
    environment="tokenizers",
)
