"""Exact search over stored vectors: block by block, mapped into memory where the format allows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from encoder_engine.errors import InputError, ReadError, ShapeError

if TYPE_CHECKING:
    import numpy.typing as npt

    from encoder_engine.inputs.identifiers import Identifier
    from encoder_engine.vectors.stored_vectors import StoredVectors


@dataclass(frozen=True, kw_only=True)
class Hit:
    """A stored row near a query: its number from 0, its id if the store has ids, its score."""

    row: int
    identifier: Identifier | None
    score: float


def search_vectors(
    store: StoredVectors, queries_QD: npt.NDArray[np.float32], num_hits: int
) -> list[list[Hit]]:
    """Return each query's rows of the largest dot products, exactly, the largest first.

    ``queries_QD``: float32 [Q, D]. Equal scores come in the order of their rows. Memory holds one
    block of the store at a time. Raises :class:`InputError` for vectors stored in bits,
    :class:`ShapeError` for queries of another width, and :class:`ReadError` for a damaged store.
    """
    if num_hits < 1:
        raise InputError(f"num_hits must be at least 1, got {num_hits}")
    best_scores = np.empty((len(queries_QD), 0), np.float32)
    best_rows = np.empty((len(queries_QD), 0), np.int64)
    first_row = 0
    for block_ND in store.float_blocks():
        if block_ND.shape[1] != queries_QD.shape[1]:
            raise ShapeError(
                f"{store.path} holds vectors of {block_ND.shape[1]} features, the queries have "
                f"{queries_QD.shape[1]}; use the model and options it was made with"
            )
        rows = np.arange(first_row, first_row + len(block_ND))
        with np.errstate(over="ignore", invalid="ignore"):
            scores = np.concatenate([best_scores, queries_QD @ block_ND.T], axis=1)
        if not np.isfinite(scores).all():
            raise ReadError(
                f"{store.path} holds numbers too large for dot products in float32; they are no "
                "vectors of a model: embed again"
            )
        rows_QN = np.concatenate([best_rows, np.tile(rows, (len(queries_QD), 1))], axis=1)
        # What was found before stands first, so a stable sort keeps rows of equal scores in order.
        order = np.argsort(-scores, axis=1, kind="stable")[:, :num_hits]
        best_scores = np.take_along_axis(scores, order, axis=1)
        best_rows = np.take_along_axis(rows_QN, order, axis=1)
        first_row += len(block_ND)
    return make_hits(store, best_rows, best_scores)


def make_hits(
    store: StoredVectors, rows_QK: npt.NDArray[np.int64], scores_QK: npt.NDArray[Any]
) -> list[list[Hit]]:
    """Return the hits of each query with their ids; a row below 0 is not a hit."""
    names = store.identifiers({row for row in rows_QK.reshape(-1).tolist() if row >= 0})
    return [
        [
            Hit(row=int(row), identifier=names.get(int(row)), score=float(score))
            for row, score in zip(rows_K, scores_K, strict=True)
            if row >= 0
        ]
        for rows_K, scores_K in zip(rows_QK, scores_QK, strict=True)
    ]
