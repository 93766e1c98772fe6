"""Pairs of texts before they are tokenized, and the order of documents by their scores."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, NotRequired, TypedDict

import numpy as np

from encoder_engine.embedding.options import check_positive
from encoder_engine.errors import InputError, TextError
from encoder_engine.strings import from_arrow

if TYPE_CHECKING:
    from encoder_engine.embedding.steps.scores import Scores

__all__ = ["Ranked", "check_top_k", "is_pair", "order_documents", "unzip_pairs"]


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


def is_pair(value: Any) -> bool:
    """Return whether a value is one pair of texts, rather than pairs."""
    paired = isinstance(value, (tuple, list)) and len(value) == 2
    return paired and isinstance(value[0], str) and isinstance(value[1], str)


def unzip_pairs(pairs: Iterable[object]) -> tuple[list[str], list[str]]:
    """Return the first and the second texts of pairs.

    Raises :class:`InputError` with the row of what is no pair, and :class:`TextError` for a text.
    """
    if isinstance(pairs, str) or not isinstance(pairs, Iterable):
        raise TextError(f"pairs must be pairs of texts, got one {type(pairs).__name__}")
    firsts, seconds = [], []
    for row, pair in enumerate(from_arrow(pairs)):
        if not isinstance(pair, (tuple, list)) or len(pair) != 2:
            raise InputError(f"pair {row} must be two texts, got {pair!r:.80}", row=row)
        firsts.append(pair[0])
        seconds.append(pair[1])
    return firsts, seconds
