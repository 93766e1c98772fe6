"""Query expansion of late interaction (ColBERT): short queries are padded with mask tokens.

The vectors of the added tokens count in MaxSim (Khattab and Zaharia 2020). In most checkpoints no
token attends to the added tokens, while these attend to the query's.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from encoder_engine.dataclass import dataclass
from encoder_engine.packing.token_rows import TokenRows

if TYPE_CHECKING:
    from encoder_engine.packing.token_rows import TokenizedRows
    from encoder_engine.text import Tokenizer

__all__ = ["QueryExpansion"]


@dataclass(frozen=True, kw_only=True)
class QueryExpansion:
    """The padding of queries to a number of tokens.

    length: the number of tokens that shorter queries are padded to.
    token_id: the token that is added.
    fixed: longer queries are truncated to ``length``; False: longer queries are kept.
    attended: whether the query's tokens attend to the added ones.
    """

    length: int
    token_id: int
    fixed: bool = True
    attended: bool = False

    def describe(self, tokenizer: Tokenizer) -> dict[str, Any]:
        """Return the settings as the file of sentence-transformers' Transformer module has them."""
        return {
            "strategy": "fixed" if self.fixed else "min",
            "length": self.length,
            "attend": self.attended,
            "token": tokenizer.id_to_token(self.token_id),
        }

    def expand(self, tokenized: TokenizedRows) -> TokenRows:
        """Return the token rows of queries with the added tokens, which have token type 0."""
        rows = TokenRows.of(tokenized)
        lengths = rows.lengths.astype(np.int64)
        missing = np.maximum(self.length - lengths, 0)
        ends = np.zeros(len(rows) + 1, dtype=np.int32)
        np.cumsum(lengths + missing, out=ends[1:])
        # The place of each token of the query among the padded rows.
        moved = np.arange(len(rows.ids)) + np.repeat(ends[:-1] - rows.cu_seqlens[:-1], lengths)
        ids = np.full(int(ends[-1]), self.token_id, dtype=np.int32)
        ids[moved] = rows.ids
        types = None
        if rows.type_ids is not None:
            types = np.zeros_like(ids)
            types[moved] = rows.type_ids
        unattended = None
        if not self.attended and missing.any():
            unattended = missing.astype(np.int32)
        return TokenRows(ids=ids, cu_seqlens=ends, type_ids=types, unattended=unattended)
