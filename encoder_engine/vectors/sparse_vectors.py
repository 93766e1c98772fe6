"""Sparse vectors in CSR form, and exact search over them by inverted lists.

Dimensions: N rows over a vocabulary of V tokens.
"""

from __future__ import annotations

from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from encoder_engine.dataclass import dataclass
from encoder_engine.errors import InputError, ShapeError
from encoder_engine.vectors.hits import Hit, check_num_hits
from encoder_engine.vectors.similarity import check_similarity, similarities

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["SparseVectors", "join_sparse", "sparse_similarities"]


@dataclass(frozen=True, kw_only=True, eq=False)
class SparseVectors:
    """A sparse matrix in CSR form: ``scipy.sparse.csr_matrix((values, indices, indptr))``.

    indptr: int64 [N + 1].
    indices: int32 [n], ascending within a row.
    values: float32 [n].
    dimension: the vocabulary size V.
    """

    indptr: np.ndarray[Any, np.dtype[np.int64]]
    indices: np.ndarray[Any, np.dtype[np.int32]]
    values: np.ndarray[Any, np.dtype[np.float32]]
    dimension: int

    def __len__(self) -> int:
        return len(self.indptr) - 1

    def row(self, number: int) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
        """Return the indices and values of one row."""
        part = slice(self.indptr[number], self.indptr[number + 1])
        return self.indices[part], self.values[part]

    def dense(self) -> np.ndarray[Any, np.dtype[np.float32]]:
        """Return the whole matrix, float32 [N, V]."""
        matrix = np.zeros((len(self), self.dimension), dtype=np.float32)
        matrix[np.repeat(np.arange(len(self)), np.diff(self.indptr)), self.indices] = self.values
        return matrix

    def similarity(self, others: SparseVectors) -> np.ndarray[Any, np.dtype[np.float32]]:
        """Return the inner products of all rows with all rows of ``others``, float32 [N, M].

        Raises :class:`ShapeError` for vectors over another vocabulary.
        """
        self._check_vocabulary(others)
        found = np.zeros((len(self), len(others)), dtype=np.float32)
        for number in range(len(self)):
            weights = np.zeros(self.dimension, dtype=np.float32)
            indices, values = self.row(number)
            weights[indices] = values
            products = weights[others.indices] * others.values
            ends = np.concatenate([[0.0], np.cumsum(products, dtype=np.float64)])
            found[number] = ends[others.indptr[1:]] - ends[others.indptr[:-1]]
        return found

    def search(self, queries: SparseVectors, num_hits: int) -> list[list[Hit]]:
        """Return, for each query, the rows with the largest inner products, largest first.

        Only rows that share a token with the query are hits. Equal scores are in the order of their
        rows. The inverted lists are made at the first call and kept. Hits have no ids;
        :func:`search_vectors` of a store adds them. Raises :class:`ShapeError` for queries over
        another vocabulary.
        """
        check_num_hits(num_hits)
        self._check_vocabulary(queries)
        starts, rows, values = self._postings
        found = []
        for number in range(len(queries)):
            scores = np.zeros(len(self), dtype=np.float64)
            met = np.zeros(len(self), dtype=np.bool_)
            for token, weight in zip(*queries.row(number), strict=True):
                part = slice(starts[token], starts[token + 1])
                # A row occurs once in a token's list, so no addition is lost.
                scores[rows[part]] += float(weight) * values[part]
                met[rows[part]] = True
            hits = np.flatnonzero(met)
            order = np.argsort(-scores[hits], kind="stable")[:num_hits]
            found.append(
                [
                    Hit(row=int(row), identifier=None, score=float(scores[row]))
                    for row in hits[order]
                ]
            )
        return found

    @cached_property
    def _postings(self) -> tuple[Any, Any, Any]:
        """The inverted lists: where each token's begins, then the rows and values of all lists."""
        order = np.argsort(self.indices, kind="stable")
        counts = np.bincount(self.indices, minlength=self.dimension)
        starts = np.concatenate([[0], np.cumsum(counts)])
        rows = np.repeat(np.arange(len(self)), np.diff(self.indptr))[order]
        return starts, rows, self.values[order]

    def _check_vocabulary(self, others: SparseVectors) -> None:
        if self.dimension != others.dimension:
            raise ShapeError(
                f"vectors over vocabularies of {self.dimension} and {others.dimension} tokens "
                "cannot be compared"
            )


def join_sparse(parts: Sequence[SparseVectors], dimension: int) -> SparseVectors:
    """Concatenate the rows of several matrices over one vocabulary."""
    starts = np.cumsum([0, *(len(part.indices) for part in parts)])
    return SparseVectors(
        indptr=np.concatenate(
            [[0], *(part.indptr[1:] + start for part, start in zip(parts, starts, strict=False))]
        ).astype(np.int64),
        indices=np.concatenate([np.zeros(0, np.int32), *(part.indices for part in parts)]),
        values=np.concatenate([np.zeros(0, np.float32), *(part.values for part in parts)]),
        dimension=dimension,
    )


def sparse_similarities(
    first: SparseVectors, second: SparseVectors, name: str | None
) -> np.ndarray[Any, np.dtype[np.float32]]:
    """Compare all rows of both by the named similarity: float32 [N, M].

    Distances, ``"euclidean"`` and ``"manhattan"``, take dense copies of both. Any other name than
    these and ``"cosine"`` means inner products, as in sentence-transformers. Raises
    :class:`InputError` for arguments that are not :class:`SparseVectors`.
    """
    for value in (first, second):
        if not isinstance(value, SparseVectors):
            raise InputError(
                "similarity compares SparseVectors, which encode returns unless "
                f"convert_to_tensor= is given, got {type(value).__name__}"
            )
    if name == "cosine":
        return _unit_rows(first).similarity(_unit_rows(second))
    if name in ("euclidean", "manhattan"):
        return similarities(first.dense(), second.dense(), check_similarity(name))
    return first.similarity(second)


def _unit_rows(vectors: SparseVectors) -> SparseVectors:
    """Return vectors scaled to length 1; one without values is unchanged."""
    rows = np.repeat(np.arange(len(vectors)), np.diff(vectors.indptr))
    squares = np.square(vectors.values, dtype=np.float64)
    lengths = np.sqrt(np.bincount(rows, weights=squares, minlength=len(vectors)))
    values = vectors.values / np.maximum(lengths, 1e-12)[rows]
    return replace(vectors, values=values.astype(np.float32))
