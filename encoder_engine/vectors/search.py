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
    check_num_hits(num_hits)
    check_queries(queries_QD)
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


def check_num_hits(value: object, name: str = "num_hits") -> None:
    """Raise :class:`InputError` unless a number of hits is a positive whole number."""
    if isinstance(value, bool) or not isinstance(value, (int, np.integer)) or value < 1:
        raise InputError(f"{name} must be a whole number of at least 1, got {value!r}")


def check_queries(queries_QD: object) -> None:
    """Raise :class:`ShapeError` for queries that are not [Q, D], InputError for NaN or infinity."""
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
