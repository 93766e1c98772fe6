"""Pairs of texts before they are tokenized, and their scores after they are computed."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NotRequired, TypedDict

import numpy as np

from encoder_engine.embedding.options import check_positive
from encoder_engine.errors import InputError, NonFiniteVectorError, TextError

__all__ = ["Ranked", "Scores", "check_scores", "check_top_k", "order_documents", "unzip_pairs"]

Scores = np.ndarray[Any, np.dtype[np.float32]]


class Ranked(TypedDict):
    """A document's index in the list, its score and, with ``return_documents``, its text."""

    corpus_id: int
    score: float
    text: NotRequired[str]


def check_top_k(top_k: int | None) -> None:
    """Raise :class:`InputError` unless it is a positive whole number or None."""
    if top_k is not None:
        check_positive(top_k, "top_k")


def order_documents(
    scores: Scores, texts: list[str], *, top_k: int | None, return_documents: bool
) -> list[Ranked]:
    """Return the documents with the best scores, equal ones in the order given."""
    best = [int(row) for row in np.argsort(-scores, kind="stable")[:top_k]]
    ranked = [Ranked(corpus_id=row, score=float(scores[row])) for row in best]
    if return_documents:
        for one in ranked:
            one["text"] = texts[one["corpus_id"]]
    return ranked


def check_scores(scores: Scores, first_row: int = 0) -> None:
    """Raise :class:`NonFiniteVectorError` for scores [N] or [N, C] that are NaN or infinite.

    ``first_row``: the row of the first score in its stream.
    """
    rows = scores[:, None] if scores.ndim == 1 else scores
    broken = np.flatnonzero(~np.isfinite(rows).all(axis=1)) + first_row
    if len(broken):
        raise NonFiniteVectorError(
            f"the scores of {len(broken)} pairs are NaN or infinite, the first is pair "
            f"{broken[0]}: the model's numbers overflow or are damaged",
            rows=[int(row) for row in broken],
        )


def unzip_pairs(pairs: Iterable[object]) -> tuple[list[str], list[str]]:
    """Return the first and the second texts of pairs.

    Raises :class:`InputError` with the row of what is no pair, and :class:`TextError` for a text.
    """
    if isinstance(pairs, str) or not isinstance(pairs, Iterable):
        raise TextError(f"pairs must be pairs of texts, got one {type(pairs).__name__}")
    firsts, seconds = [], []
    for row, pair in enumerate(pairs):
        if not isinstance(pair, (tuple, list)) or len(pair) != 2:
            raise InputError(f"pair {row} must be two texts, got {pair!r:.80}", row=row)
        firsts.append(pair[0])
        seconds.append(pair[1])
    return firsts, seconds
