"""Selects the predicted spans among the scored ones, and scores predictions."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from encoder_engine.packing.spans import list_spans

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    import numpy.typing as npt

    Integers = npt.NDArray[np.int64]

__all__ = [
    "LOWEST_SCORE",
    "NOT_HERE",
    "PredictedSpan",
    "Span",
    "best_threshold",
    "crossing",
    "places_in_item",
    "scores_of_spans",
    "select_spans",
]

# Spans below it are never predicted, so that a sweep of thresholds need not keep all spans.
LOWEST_SCORE = 0.05
# The class of spans that another window answers for.
NOT_HERE = -1


class Span(NamedTuple):
    """An entity: the words ``start`` to ``stop - 1`` of a sentence, and its type."""

    start: int
    stop: int
    type: str


class PredictedSpan(NamedTuple):
    """A predicted span, and its score 1 - P(NULL): the probability that it is an entity.

    Of a GLiNER model, the score is the probability of the label.
    """

    start: int
    stop: int
    type: str
    score: float


def crossing(one: Sequence[Any], two: Sequence[Any], *, nested: bool) -> bool:
    """Return whether two spans exclude each other: they overlap, if ``nested`` only in part."""
    if one[0] >= two[1] or two[0] >= one[1]:
        return False
    if not nested:
        return True
    inside = one[0] >= two[0] and one[1] <= two[1]
    around = one[0] <= two[0] and one[1] >= two[1]
    return not (inside or around)


def select_spans(candidates: Iterable[PredictedSpan], *, nested: bool) -> tuple[PredictedSpan, ...]:
    """Select spans greedily, highest score first; leave out what a selected span excludes.

    Of equal scores the earlier and shorter span comes first. The selected spans above any threshold
    are a prefix of the result, because only a span of higher score can exclude another.
    """
    taken: list[PredictedSpan] = []
    for span in sorted(candidates, key=lambda found: (-found.score, found.start, found.stop)):
        if not any(crossing(span, other, nested=nested) for other in taken):
            taken.append(span)
    return tuple(taken)


def places_in_item(starts: Integers, widths: Integers, num_words: Integers) -> Integers:
    """Return each span's index among all spans of its item, in order of width and then of start.

    starts: the index of each span's first word in its item. widths: its number of words.
    num_words: the number of words of its item.
    """
    shorter = widths - 1
    return shorter * num_words - shorter * (shorter - 1) // 2 + starts


def window_of_spans(
    words: Sequence[Integers], before: Sequence[Integers], after: Sequence[Integers], max_width: int
) -> list[npt.NDArray[np.bool_]]:
    """Mark the spans that belong to each window of a sentence: for each window, bool [its spans].

    A span belongs to the window with most context, which is the smaller of the numbers of tokens
    before and after the span; of equals to the first (see :mod:`windows`).
    words, before, after: the fields of each window's :class:`WordWindow`.
    """
    best: dict[tuple[int, int], tuple[int, int]] = {}
    listed = []
    for number, (word, left, right) in enumerate(zip(words, before, after, strict=True)):
        spans = list_spans(np.array([0, len(word)]), max_width)
        contexts = np.minimum(left[spans.starts], right[spans.stops - 1])
        keys = list(zip(word[spans.starts].tolist(), word[spans.stops - 1].tolist(), strict=True))
        listed.append(keys)
        for key, context in zip(keys, contexts.tolist(), strict=True):
            if key not in best or context > best[key][0]:
                best[key] = (context, number)
    return [
        np.array([best[key][1] == number for key in keys], np.bool_)
        for number, keys in enumerate(listed)
    ]


def best_threshold(
    gold: Sequence[frozenset[Span]], ranked: Sequence[Sequence[PredictedSpan]], default: float
) -> float:
    """Return the threshold with the highest micro F1; of equally good ones the highest.

    ranked: spans as :func:`select_spans` returns them. default: the threshold if none is right. The
    threshold lies half-way between two scores, or the lowest and ``LOWEST_SCORE``.
    """
    found = [
        (span.score, Span(*span[:3]) in wanted)
        for wanted, spans in zip(gold, ranked, strict=True)
        for span in spans
    ]
    if not found or not any(right for _, right in found):
        return default
    found.sort(key=lambda pair: -pair[0])
    scores = np.array([score for score, _ in found])
    hits = np.cumsum([right for _, right in found])
    f1 = 2.0 * hits / (np.arange(1, len(found) + 1) + sum(map(len, gold)))
    last = np.r_[scores[1:] != scores[:-1], True]
    place = int(np.where(last, f1, -1.0).argmax())
    after = scores[place + 1] if place + 1 < len(scores) else LOWEST_SCORE
    return float((scores[place] + after) / 2.0)


def scores_of_spans(
    gold: Sequence[frozenset[Span]], predicted: Sequence[frozenset[Span]]
) -> dict[str, dict[str, float]]:
    """Return precision, recall and F1 in percent by type, and of all types under ``""``."""
    counts: dict[str, Counter[str]] = {"": Counter()}
    for wanted, found in zip(gold, predicted, strict=True):
        for name, some in (("gold", wanted), ("predicted", found), ("right", wanted & found)):
            for span in some:
                counts.setdefault(span.type, Counter())[name] += 1
                counts[""][name] += 1
    return {
        kind: {
            "precision": 100.0 * count["right"] / max(count["predicted"], 1),
            "recall": 100.0 * count["right"] / max(count["gold"], 1),
            "f1": 200.0 * count["right"] / max(count["gold"] + count["predicted"], 1),
            "num_gold": float(count["gold"]),
        }
        for kind, count in sorted(counts.items())
    }
