"""Counts truncated texts, and warns once per call."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from encoder_engine.errors import SequenceLengthError, TruncationWarning
from encoder_engine.warn import warn_caller

if TYPE_CHECKING:
    from encoder_engine.kinds.options import OnTruncation

__all__ = ["TruncationNotice"]


class TruncationNotice:
    """Counts a call's truncated rows, and raises at the first or warns of all at the end.

    limit: the most tokens of a row (a text or a pair).
    row_name: the word for a row in messages.
    remedy: the advice of the warning.
    """

    def __init__(
        self,
        on_truncation: OnTruncation,
        *,
        limit: int | None,
        row_name: str = "text",
        remedy: str = "split them",
    ) -> None:
        self.num_rows = self.num_truncated = 0
        self._on_truncation, self._limit = on_truncation, limit
        self._row_name, self._remedy = row_name, remedy

    def observe(self, truncated: np.ndarray[Any, np.dtype[np.bool_]], first_row: int = 0) -> None:
        """Count the truncated rows of a window, bool [n].

        Raises :class:`SequenceLengthError` for the first truncated row with
        ``on_truncation="error"``.
        """
        self.num_rows += len(truncated)
        self.num_truncated += int(truncated.sum())
        if self.num_truncated and self._on_truncation == "error":
            row = first_row + int(np.flatnonzero(truncated)[0])
            raise SequenceLengthError(
                f"{self._row_name} {row} is longer than {self._limit} tokens; split it, "
                "raise max_seq_length, or allow the cut with on_truncation='warn'",
                row=row,
            )

    def warn(self) -> None:
        """Issue one :class:`TruncationWarning` for all truncated rows, if the call asks for it."""
        if self.num_truncated and self._on_truncation == "warn":
            warn_caller(
                TruncationWarning(
                    f"{self.num_truncated} of {self.num_rows} {self._row_name}s were longer than "
                    f"{self._limit} tokens and lost their tails; {self._remedy}, or accept it "
                    "with on_truncation='ignore'",
                    num_truncated=self.num_truncated,
                )
            )
