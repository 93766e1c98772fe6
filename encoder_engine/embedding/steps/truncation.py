"""Saying that texts were longer than a model reads, once for a call."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING, Any

import numpy as np

from encoder_engine.errors import SequenceLengthError, TruncationWarning

if TYPE_CHECKING:
    from encoder_engine.embedding.embedder import Embedder
    from encoder_engine.embedding.options import OnTruncation

__all__ = ["tell_truncation", "warn_of_truncation"]


def tell_truncation(
    truncated: np.ndarray[Any, np.dtype[np.bool_]],
    limit: int | None,
    on_truncation: OnTruncation,
    *,
    what: str,
) -> None:
    """Warn of rows that lost tokens, or raise :class:`SequenceLengthError`, or neither."""
    number = int(truncated.sum())
    if not number or on_truncation == "ignore":
        return
    said = f"{number} of {len(truncated)} {what}s were longer than {limit} tokens"
    if on_truncation == "error":
        row = int(np.flatnonzero(truncated)[0])
        raise SequenceLengthError(
            f"{said}, the first is {what} {row}; split it, or allow the cut with "
            "on_truncation='warn'",
            row=row,
        )
    warnings.warn(
        TruncationWarning(
            f"{said} and lost their tails; split them, or accept it with on_truncation='ignore'",
            num_truncated=number,
        ),
        stacklevel=4,
    )


def warn_of_truncation(embedder: Embedder, num_truncated: int, num_texts: int) -> None:
    """Warn that texts lost their tails, and say what could be done about it."""
    positions, limit = embedder.encoder.spec.max_length, embedder.max_seq_length
    more = (
        f"raise max_seq_length (the model can place {positions}) or "
        if positions is None or (limit or 0) < positions
        else ""
    )
    warnings.warn(
        TruncationWarning(
            f"{num_truncated} of {num_texts} texts were longer than {limit} tokens and lost their "
            f"tails; {more}split them, embed them whole by encode_long, or accept it with "
            "on_truncation='ignore'",
            num_truncated=num_truncated,
        ),
        stacklevel=3,
    )
