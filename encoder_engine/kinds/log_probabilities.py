"""Log-probabilities of the tokens of texts by a causal language model.

How it works: a token's probability is conditioned on the tokens before it. The first token of a row
has none before it and is not counted; if the tokenizer puts a special token first, the special
token is not counted. The tokens of a context are not counted either.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from encoder_engine.engine.outputs import LogProbabilities as Wanted
from encoder_engine.errors import InputError
from encoder_engine.kinds.kind import Kind
from encoder_engine.kinds.options import Options
from encoder_engine.kinds.tokens import collect_states

if TYPE_CHECKING:
    from encoder_engine.engine.protocol import Vectors
    from encoder_engine.kinds.kind import Batches
    from encoder_engine.kinds.windows import TokenizedWindow
    from encoder_engine.packing.token_rows import TokenRows, WindowRows
    from encoder_engine.text import Encoding

__all__ = ["LogProbabilities"]


class LogProbabilities(Kind):
    """The :class:`Kind` of log-probabilities: per text float32 [n], one per counted token.

    The prompt of a call is the context of the texts; its tokens are not counted.
    """

    name = "log-probabilities"
    noun = "log-probabilities"

    def resolve(self, *, context: str | None = None, **common: Any) -> Options:
        """Validate the keywords of a call, and fill in defaults."""
        if context is not None and not isinstance(context, str):
            raise InputError(f"context must be a str, got {type(context).__name__}")
        return Options(**self.common_options(prompt=context or "", **common), dimension=1)

    def needs_tokens(self, options: Options) -> bool:
        """Return False: a text without tokens gets an empty array."""
        del options
        return False

    def tokenize(self, rows: list[str], options: Options) -> WindowRows:
        """Tokenize texts, each together with the context before it."""
        return self.tokenizer.encode_batch(
            [options.prompt + text for text in rows],
            max_length=self.limit(options),
            num_threads=self.model.engine.num_threads,
            return_offsets=bool(options.prompt),
        )

    def wanted(self, options: Options) -> tuple[Wanted, ...]:
        """Return what the engine computes for a batch: the log-probability of each token."""
        del options
        return (Wanted(),)

    def finish(self, window: TokenizedWindow, batches: Batches, options: Options) -> list[Vectors]:
        """Compute the log-probabilities of the counted tokens of each text, float32 [n]."""
        rows = batches.rows
        found = np.zeros(len(rows.ids), dtype=np.float32)
        for batch, (scores,) in batches:
            batches.scatter(batch, scores, found)
        collect_states(found[:, None], batches, rows.ids, what="scores of tokens")
        encoding: Any = window.encoding
        counted = _counted(encoding, rows, len(options.prompt))
        parts = np.split(np.arange(len(found)), rows.cu_seqlens[1:-1])
        return [found[part[counted[part]]] for part in parts[: len(rows)]]

    def join(self, parts: list[list[Vectors]], options: Options) -> list[Vectors]:
        """Concatenate the lists of successive parts of the input."""
        del options
        return [scores for part in parts for scores in part]


def _counted(encoding: Encoding, rows: TokenRows, context_length: int) -> np.ndarray[Any, Any]:
    """Return whether the log-probability of each token is counted, bool [T].

    A row's first token and the context's tokens are not counted. A token that the tokenizer puts at
    the end of a text is, with a context or without.
    """
    counted = np.ones(len(rows.ids), dtype=bool)
    starts = rows.cu_seqlens[:-1][rows.lengths > 0]
    counted[starts] = False
    if context_length and len(starts):
        # The first token of each row that holds a character of the text; what follows is counted.
        numbers = np.arange(len(rows.ids))
        after = np.where(encoding.offsets[:, 1] > context_length, numbers, len(numbers))
        first = np.minimum.reduceat(after, starts)
        counted &= numbers >= np.repeat(first, rows.lengths[rows.lengths > 0])
    return counted
