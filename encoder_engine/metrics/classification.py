"""Scores of predicted classes: accuracy, F1, Matthews correlation, a confusion matrix."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from encoder_engine.metrics.pairing import paired

if TYPE_CHECKING:
    import numpy.typing as npt

    Labels = npt.ArrayLike
    Counts = npt.NDArray[np.int64]

__all__ = ["ClassScores", "accuracy", "class_scores", "confusion_matrix", "macro_f1", "matthews"]


class ClassScores(NamedTuple):
    """Precision, recall and F1 of one class.

    ``precision``, ``recall``, ``f1``: shares from 0 to 1; 0 where the denominator is 0, as in
    ``sklearn.metrics`` with ``zero_division=0``.
    ``support``: the number of rows with this gold label.
    """

    precision: float
    recall: float
    f1: float
    support: int


def confusion_matrix(gold: Labels, predicted: Labels, *, num_classes: int) -> Counts:
    """Count rows by gold class and predicted class: int64 [num_classes, num_classes].

    gold, predicted: classes from 0 to ``num_classes - 1``, integers [N].
    Raises :class:`InputError` for unequal lengths, no row, and a class out of range.
    """
    rows, columns = paired(gold, predicted, num_classes=num_classes)
    counts = np.bincount(rows * num_classes + columns, minlength=num_classes**2)
    return counts.reshape(num_classes, num_classes).astype(np.int64)


def accuracy(gold: Labels, predicted: Labels) -> float:
    """Return the share, 0 to 1, of rows whose predicted class is right; both are integers [N]."""
    rows, columns = paired(gold, predicted)
    return float((rows == columns).mean())


def class_scores(confusion: Counts) -> list[ClassScores]:
    """Return precision, recall and F1 of each class of a confusion matrix."""
    right = np.diag(confusion)
    support, predicted = confusion.sum(1), confusion.sum(0)
    return [
        ClassScores(
            precision=hit / max(count, 1),
            recall=hit / max(number, 1),
            f1=2 * hit / max(count + number, 1),
            support=number,
        )
        for hit, count, number in zip(
            right.tolist(), predicted.tolist(), support.tolist(), strict=True
        )
    ]


def macro_f1(confusion: Counts) -> float:
    """Return the mean F1, 0 to 1, over the classes that occur in gold or predicted labels."""
    present = (confusion.sum(0) + confusion.sum(1)) > 0
    scores = [
        score.f1 for score, there in zip(class_scores(confusion), present, strict=True) if there
    ]
    return float(np.mean(scores))


def matthews(confusion: Counts) -> float:
    """Return Matthews' correlation coefficient for any number of classes (Gorodkin 2004).

    0 where all gold or all predicted classes are the same, as in ``sklearn.metrics``: a constant
    prediction carries no information.
    """
    counts = confusion.astype(np.float64)
    gold, predicted, total = counts.sum(1), counts.sum(0), counts.sum()
    covariance = np.trace(counts) * total - gold @ predicted
    spread = (total**2 - gold @ gold) * (total**2 - predicted @ predicted)
    return float(covariance / math.sqrt(spread)) if spread > 0 else 0.0
