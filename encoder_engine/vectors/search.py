"""Exact search over stored vectors, block by block, memory-mapped if the format allows."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from encoder_engine.errors import InputError, ReadError, ShapeError
from encoder_engine.vectors.hits import Hit, check_num_hits
from encoder_engine.vectors.sparse_vectors import SparseVectors

if TYPE_CHECKING:
    import numpy.typing as npt

    from encoder_engine.vectors.stored_vectors import StoredVectors

# Queries whose scores are in memory at a time: 16 MB for a block of 16,384 rows.
QUERIES = 256
# The best rows and their scores, [Q, K] each.
Best = tuple["npt.NDArray[np.int64]", "npt.NDArray[np.float32]"]


def search_vectors(
    store: StoredVectors, queries_QD: npt.NDArray[np.float32] | SparseVectors, num_hits: int
) -> list[list[Hit]]:
    """Return, for each query, the rows with the largest dot products, exactly, largest first.

    ``queries_QD``: float32 [Q, D], or the sparse vectors of Q queries for a store of sparse
    vectors; see :meth:`SparseVectors.search`. Equal scores are in the order of their rows. Memory
    holds one block of the store and its scores for 256 queries at a time; of a sparse store, all
    rows. Raises :class:`InputError` for vectors stored in bits, queries with NaN and a store of
    another kind, :class:`ShapeError` for queries of another width, and :class:`ReadError` for a
    damaged store.
    """
    check_num_hits(num_hits)
    if isinstance(queries_QD, SparseVectors):
        return _with_ids(store, store.sparse.search(queries_QD, num_hits))
    check_queries(queries_QD)
    parts = query_parts(queries_QD)
    best = [no_hits(part_QD) for part_QD in parts]
    first_row = 0
    for block_ND in store.float_blocks():
        if block_ND.shape[1] != queries_QD.shape[1]:
            raise ShapeError(
                f"{store.path} holds vectors of {block_ND.shape[1]} features, the queries have "
                f"{queries_QD.shape[1]}; use the model and options it was made with"
            )
        for place, part_QD in enumerate(parts):
            with np.errstate(over="ignore", invalid="ignore"):
                scores_QN = part_QD @ block_ND.T
            if not np.isfinite(scores_QN).all():
                raise ReadError(
                    f"{store.path} holds numbers too large for dot products in float32; they are "
                    "no vectors of a model: embed again"
                )
            best[place] = keep_best(best[place], scores_QN, first_row, num_hits)
        first_row += len(block_ND)
    rows_QK, scores_QK = (np.concatenate(found) for found in zip(*best, strict=True))
    return make_hits(store, rows_QK, scores_QK)


def query_parts(queries_QD: npt.NDArray[Any]) -> list[npt.NDArray[Any]]:
    """Split queries into parts of at most 256, which bounds the memory of a block's scores."""
    starts = range(0, max(len(queries_QD), 1), QUERIES)
    return [queries_QD[start : start + QUERIES] for start in starts]


def no_hits(queries_QD: npt.NDArray[Any]) -> Best:
    """Return rows and scores of no hits, [Q, 0] each, for the first call of :func:`keep_best`."""
    shape = (len(queries_QD), 0)
    return np.empty(shape, np.int64), np.empty(shape, np.float32)


def keep_best(best: Best, scores_QN: npt.NDArray[np.float32], first_row: int, count: int) -> Best:
    """Merge the best hits so far with the scores of the next block; return the best ``count``.

    best: the rows and the scores of the hits so far, [Q, K] each.
    scores_QN: the scores of the block's rows.
    first_row: the number of the block's first row.
    """
    rows_QK, scores_QK = best
    scores = np.concatenate([scores_QK, scores_QN], axis=1)
    # What was found before stands first, so a stable sort keeps rows of equal scores in order.
    order = np.argsort(-scores, axis=1, kind="stable")[:, :count]
    num_before = rows_QK.shape[1]
    numbers = first_row + order - num_before
    if num_before:
        before = np.take_along_axis(rows_QK, np.minimum(order, num_before - 1), axis=1)
        numbers = np.where(order < num_before, before, numbers)
    return numbers, np.take_along_axis(scores, order, axis=1)


def check_queries(queries_QD: object) -> None:
    """Raise :class:`ShapeError` for queries that are not an array [Q, D].

    Raises :class:`InputError` for a dtype that is not floating-point, and for NaN or infinity.
    """
    if not isinstance(queries_QD, np.ndarray) or queries_QD.ndim != 2:
        shape = list(getattr(queries_QD, "shape", ())) or type(queries_QD).__name__
        raise ShapeError(
            f"queries must be an array [Q, D], got {shape}; of one vector, vector[None]"
        )
    if queries_QD.dtype.kind != "f":
        raise InputError(f"queries are {queries_QD.dtype}; search by float32 vectors")
    broken = np.flatnonzero(~np.isfinite(queries_QD).all(axis=1))
    if len(broken):
        row = int(broken[0])
        raise InputError(f"query {row} holds NaN or infinity; embed it again", row=row)


def make_hits(
    store: StoredVectors, rows_QK: npt.NDArray[np.int64], scores_QK: npt.NDArray[Any]
) -> list[list[Hit]]:
    """Return each query's hits, with the ids of their rows; a row below 0 stands for no hit."""
    names = store.identifiers({row for row in rows_QK.reshape(-1).tolist() if row >= 0})
    kept = store.kept({row for row in rows_QK.reshape(-1).tolist() if row >= 0})
    return [
        [
            Hit(
                row=int(row),
                identifier=names.get(int(row)),
                score=float(score),
                kept=kept.get(int(row), {}),
            )
            for row, score in zip(rows_K, scores_K, strict=True)
            if row >= 0
        ]
        for rows_K, scores_K in zip(rows_QK, scores_QK, strict=True)
    ]


def _with_ids(store: StoredVectors, found: list[list[Hit]]) -> list[list[Hit]]:
    """Return the hits with the ids and kept values of their rows, if the store has these."""
    rows = {hit.row for hits in found for hit in hits}
    names, kept = store.identifiers(rows), store.kept(rows)
    return [
        [replace(h, identifier=names.get(h.row), kept=kept.get(h.row, {})) for h in hits]
        for hits in found
    ]
