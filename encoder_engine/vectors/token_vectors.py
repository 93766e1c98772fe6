"""A vector for each token of texts, and the late-interaction similarity of ColBERT.

Dimensions: T tokens of all texts, D features, Q queries, N documents.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from encoder_engine.dataclass import dataclass
from encoder_engine.errors import ShapeError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

__all__ = ["TokenVectors", "join_tokens", "max_similarity"]

Array = np.ndarray[Any, np.dtype[np.float32]]
IdArray = np.ndarray[Any, np.dtype[np.int32]]


@dataclass(frozen=True, kw_only=True, eq=False)
class TokenVectors:
    """The packed tokens of texts: ``vectors`` float32 [T, D], ``ids`` int32 [T].

    Text i has the rows from ``cu_seqlens[i]`` to ``cu_seqlens[i + 1]``, int64 [N + 1];
    indexing with ``[i]`` returns its vectors.
    """

    vectors: Array
    ids: IdArray
    cu_seqlens: np.ndarray[Any, np.dtype[np.int64]]

    def __len__(self) -> int:
        return len(self.cu_seqlens) - 1

    def __getitem__(self, number: int) -> Array:
        if not -len(self) <= number < len(self):
            raise IndexError(f"text {number} of {len(self)}")
        number %= len(self)
        return self.vectors[self.cu_seqlens[number] : self.cu_seqlens[number + 1]]

    def __iter__(self) -> Iterator[Array]:
        return (self[number] for number in range(len(self)))

    def without(self, ids: Iterable[int]) -> TokenVectors:
        """Return the texts without the vectors of tokens that have these ids."""
        return self._take(~np.isin(self.ids, np.fromiter(ids, dtype=np.int32)))

    def only(self, ids: Iterable[int]) -> TokenVectors:
        """Return the texts with the vectors of tokens that have these ids, and no others."""
        return self._take(np.isin(self.ids, np.fromiter(ids, dtype=np.int32)))

    def _take(self, kept: np.ndarray[Any, np.dtype[np.bool_]]) -> TokenVectors:
        before = np.concatenate([[0], np.cumsum(kept)])
        return TokenVectors(
            vectors=self.vectors[kept],
            ids=self.ids[kept],
            cu_seqlens=before[self.cu_seqlens].astype(np.int64),
        )


def max_similarity(queries: TokenVectors, documents: TokenVectors) -> Array:
    """Score documents for queries by MaxSim: float32 [Q, N].

    The score is ``sum_i max_j (query_i . document_j)`` (Khattab and Zaharia 2020), and 0 for a
    document without a token. Raises :class:`ShapeError` for vectors of different widths.
    """
    widths = queries.vectors.shape[1], documents.vectors.shape[1]
    if widths[0] != widths[1]:
        raise ShapeError(f"queries have {widths[0]} features, documents {widths[1]}")
    scores = np.zeros((len(queries), len(documents)), dtype=np.float32)
    lengths = np.diff(documents.cu_seqlens)
    there = np.flatnonzero(lengths)
    starts = documents.cu_seqlens[:-1][there]
    for number, query in enumerate(queries):
        if len(query) and len(there):
            best = np.maximum.reduceat(query @ documents.vectors.T, starts, axis=1)
            scores[number, there] = best.sum(0)
    return scores


def join_tokens(parts: Sequence[TokenVectors], width: int) -> TokenVectors:
    """Concatenate the texts of several :class:`TokenVectors` of ``width`` features."""
    starts = np.cumsum([0, *(len(part.ids) for part in parts)])
    ends = [part.cu_seqlens[1:] + start for part, start in zip(parts, starts, strict=False)]
    return TokenVectors(
        vectors=np.concatenate([np.empty((0, width), np.float32), *(p.vectors for p in parts)]),
        ids=np.concatenate([np.empty(0, np.int32), *(part.ids for part in parts)]),
        cu_seqlens=np.concatenate([[0], *ends]).astype(np.int64),
    )
