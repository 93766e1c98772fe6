"""Thresholds and scores of multi-label classification: any number of labels per row.

Dimensions: N rows, C labels.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    import numpy.typing as npt

    Scores = npt.NDArray[np.float64]

__all__ = ["best_thresholds", "scores_of_label_sets", "sigmoid"]


def sigmoid(logits: Scores) -> Scores:
    """Return 1 / (1 + exp(-logits)), without overflow."""
    probabilities: Scores = np.exp(-np.logaddexp(0.0, -logits))
    return probabilities


def best_thresholds(probabilities: Scores, gold: npt.NDArray[np.float32]) -> tuple[float, ...]:
    """Return the threshold of each label that has the highest F1 on the given rows.

    probabilities: [N, C]; gold: 0 and 1 [N, C].

    A threshold lies half-way between two probabilities, or the lowest and 0; among equally good
    ones the lowest is taken. A label that no row has gets 0.5.
    """
    found = []
    for probability, right in zip(probabilities.T, gold.T > 0, strict=True):
        if not right.any():
            found.append(0.5)
            continue
        order = np.argsort(-probability, kind="stable")
        ranked, hits = probability[order], np.cumsum(right[order])
        f1 = 2.0 * hits / (np.arange(1, len(probability) + 1) + right.sum())
        # A threshold cannot separate rows of equal probability.
        last = np.r_[ranked[1:] != ranked[:-1], True]
        f1 = np.where(last, f1, -1.0)
        place = len(f1) - 1 - int(f1[::-1].argmax())
        after = ranked[place + 1] if place + 1 < len(ranked) else 0.0
        found.append(float((ranked[place] + after) / 2.0))
    return tuple(found)


def scores_of_label_sets(
    gold: npt.NDArray[np.float32], predicted: npt.NDArray[np.float32]
) -> dict[str, float]:
    """Return micro F1, macro F1 and exact-match accuracy of the label sets, in percent.

    ``macro_f1`` leaves out labels that are neither gold nor predicted in any row.
    """
    right, guessed = gold > 0, predicted > 0
    hits = (right & guessed).sum(0)
    sums = right.sum(0) + guessed.sum(0)
    there = sums > 0
    by_label = 2.0 * hits[there] / sums[there]
    return {
        "micro_f1": 100.0 * float(2.0 * hits.sum() / max(sums.sum(), 1)),
        "macro_f1": 100.0 * float(by_label.mean() if there.any() else 0.0),
        "exact_match": 100.0 * float((right == guessed).all(1).mean()),
    }
