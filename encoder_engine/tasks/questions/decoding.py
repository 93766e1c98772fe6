"""Decodes answers from the logits of all windows of a question.

The score of a span is the sum of its start logit and its end logit; scores are compared across
windows. The null score is the same sum at the first token, the lowest over the windows, as in SQuAD
2.0.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy.typing as npt

    Floats = npt.NDArray[np.floating]
    Integers = npt.NDArray[np.int64]

__all__ = ["Answer", "QuestionWindow", "best_null_threshold", "n_best", "null_score"]


class QuestionWindow(NamedTuple):
    """The logits of a window of a question's context, and the range of the context's tokens.

    ``starts``, ``ends`` [n]: logits of all tokens of the window.
    ``first``, ``stop``: the context is tokens ``first`` to ``stop - 1``. ``chars`` int64 [stop -
    first, 2]: each context token's first and last + 1 character in the context.
    """

    starts: Floats
    ends: Floats
    first: int
    stop: int
    chars: Integers


class Answer(NamedTuple):
    """Characters ``start`` to ``stop - 1`` of a context, their text, and the span's score."""

    text: str
    start: int
    stop: int
    score: float


def n_best(
    windows: Sequence[QuestionWindow], context: str, *, num_best: int, max_tokens: int
) -> list[Answer]:
    """Return up to ``num_best`` answers over all windows of a context, best first, each span once.

    In each window the ``num_best`` best starts and ends are paired, if the end is not before the
    start and the span has at most ``max_tokens`` tokens. Ties go to the earlier window, then start,
    then end.
    """
    found: dict[tuple[int, int], float] = {}
    for window in windows:
        part = slice(window.first, window.stop)
        starts, ends = window.starts[part].astype(np.float64), window.ends[part].astype(np.float64)
        first = np.sort(np.argsort(-starts, kind="stable")[:num_best])
        last = np.sort(np.argsort(-ends, kind="stable")[:num_best])
        sums = starts[first][:, None] + ends[last][None, :]
        widths = last[None, :] - first[:, None] + 1
        rows, columns = np.nonzero((widths >= 1) & (widths <= max_tokens))
        scores = sums[rows, columns]
        for place in np.argsort(-scores, kind="stable")[:num_best].tolist():
            start = int(window.chars[first[rows[place]], 0])
            stop = int(window.chars[last[columns[place]], 1])
            # Windows overlap: a span that two windows hold keeps its higher score.
            score = float(scores[place])
            if stop > start and score > found.get((start, stop), -np.inf):
                found[start, stop] = score
    ranked = sorted(found.items(), key=lambda item: -item[1])[:num_best]
    return [Answer(context[start:stop], start, stop, score) for (start, stop), score in ranked]


def null_score(windows: Sequence[QuestionWindow]) -> float:
    """Return the null score: the lowest sum of the first token's two logits over the windows."""
    return min(float(window.starts[0]) + float(window.ends[0]) for window in windows)


def best_null_threshold(
    differences: Floats, answered: Floats, unanswered: Floats, default: float
) -> float:
    """Return the null threshold with the highest mean score; of equally good ones the lowest.

    A question counts as answered if its entry of ``differences`` is at most the threshold.

    differences: null score minus best span score of each question.
    answered, unanswered: the score of each question if it is answered, and if it is not.
    default: the threshold if there is no question.
    """
    if not len(differences):
        return default
    order = np.argsort(differences, kind="stable")
    ranked = differences[order].astype(np.float64)
    gains = np.r_[0.0, np.cumsum((answered - unanswered)[order])]
    # Whether a threshold can answer exactly the first k: equal differences go together.
    allowed = np.r_[True, ranked[1:] != ranked[:-1], True]
    place = int(np.where(allowed, gains, -np.inf).argmax())
    if place == 0:
        return float(ranked[0] - 1.0)
    if place == len(ranked):
        return float(ranked[-1])
    return float((ranked[place - 1] + ranked[place]) / 2.0)
