"""Checks the scores of pairs, and applies the caller's activation and softmax to them.

Dimensions: N pairs, C labels.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from encoder_engine.embedding.engines.choosing import torch_engine
from encoder_engine.errors import InputError, NonFiniteVectorError
from encoder_engine.packing.module_stack import SCORE_FUNCTIONS

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["Scores", "apply_function", "check_scores", "softmax"]

Scores = np.ndarray[Any, np.dtype[np.float32]]


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


def apply_function(function: Callable[[Any], Any], logits_NC: Scores) -> Scores:
    """Return the scores that a function of PyTorch makes of logits."""
    found = function(torch_engine("activation_fn=").as_tensor(logits_NC))
    # NumPy has no bfloat16.
    plain = found.detach().float().cpu() if hasattr(found, "detach") else found
    scores = np.asarray(plain, dtype=np.float32)
    if scores.shape[:1] != logits_NC.shape[:1] or scores.ndim > 2:
        raise InputError(
            f"activation_fn must return a row of scores for each of {len(logits_NC)} pairs, it "
            f"returned {list(scores.shape)}"
        )
    check_scores(scores)
    return scores


def softmax(scores_NC: Scores) -> Scores:
    """Return scores that are above 0 and add up to 1 for each pair."""
    return SCORE_FUNCTIONS["softmax"](scores_NC)
