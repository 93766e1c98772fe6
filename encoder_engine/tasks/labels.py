"""Collects the labels of training rows, and scores predicted labels."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import numpy as np

from encoder_engine.errors import InputError
from encoder_engine.json_values import nearest
from encoder_engine.metrics.calibration import calibration
from encoder_engine.metrics.classification import (
    class_scores,
    confusion_matrix,
    macro_f1,
    matthews,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    import numpy.typing as npt

    from encoder_engine.inputs.records import Record

    Integers = npt.NDArray[np.int64]
    Logits = npt.NDArray[np.float64]

__all__ = [
    "balanced_weights",
    "calibration_details",
    "check_label",
    "check_labels",
    "collect_labels",
    "confusion_details",
    "scores_of_classes",
    "softmax",
    "unfit_for_correlation",
    "unlabelled",
]


# Texts that int() reads: not too many digits, and no characters such as "²".
_WHOLE = re.compile(r"-?[0-9]{1,18}")


def check_labels(labels: Sequence[str]) -> list[str]:
    """Return the labels that a caller passed, as a list.

    Raises :class:`InputError` unless they are one or more strings that are not blank.
    """
    if isinstance(labels, str):
        raise InputError(f"labels must be a list of names, got one text; pass [{labels!r}]")
    names = list(labels)
    if not names or not all(isinstance(name, str) and name.strip() for name in names):
        raise InputError(f"labels must be one or more names that are not blank, got {names!r:.80}")
    return names


def collect_labels(names: Iterable[str], *, least: int = 2) -> tuple[str, ...]:
    """Return distinct labels, sorted: by value if all are whole numbers, else alphabetically.

    Raises :class:`InputError` for fewer than ``least``.
    """
    distinct = set(names)
    numeric = all(_WHOLE.fullmatch(name) for name in distinct)
    # By name among equal numbers, such as 1 and 01.
    found = tuple(sorted(distinct, key=lambda n: (int(n), n)) if numeric else sorted(distinct))
    if len(found) < least:
        shown = ", ".join(map(repr, found)) or "none"
        raise InputError(
            f"the training rows have {len(found)} labels ({shown}); {least} or more are needed to "
            "learn from: check the label column"
        )
    return found


def unlabelled(setting: str, column: str) -> str:
    """Return the error message for a row whose column of labels, ``column``, has no value.

    ``setting``: the task's setting that holds this column's name.
    """
    return (
        f"the row is not labelled: {column} has no value; name another column by task.{setting}, "
        "or drop the row"
    )


def check_label(record: Record, name: str, labels: Sequence[str]) -> None:
    """Raise :class:`RowError` if a row's label ``name`` is not in ``labels``; () allows any."""
    if labels and name not in labels:
        shown = ", ".join(labels[:20]) + (", ..." if len(labels) > 20 else "")
        record.refuse(
            f"the label {name!r} is unknown{nearest(name, labels)}; known are {shown}: labels are "
            "those of the training rows, or of the task's setting 'labels'"
        )


def balanced_weights(classes: Integers, num_classes: int) -> tuple[float, ...]:
    """Return the weight N / (C n_c) of each class, n_c of N rows; the mean over rows is 1."""
    counts = np.bincount(classes, minlength=num_classes)
    weights = len(classes) / (num_classes * np.maximum(counts, 1))
    return tuple(float(weight) for weight in weights)


def softmax(logits: Logits) -> Logits:
    """Return the softmax of logits over the last axis."""
    raised = np.exp(logits - logits.max(-1, keepdims=True))
    probabilities: Logits = raised / raised.sum(-1, keepdims=True)
    return probabilities


def unfit_for_correlation(metric: str, golds: Sequence[float]) -> str | None:
    """Return why rows whose gold scores are all equal have no correlation; None: they differ."""
    if len(set(golds)) != 1:
        return None
    return (
        f"{metric} of equal scores is undefined, and all rows ({len(golds)}) have the score "
        f"{golds[0]:g}: give rows of different scores"
    )


def scores_of_classes(
    gold: Integers, predicted: Integers, logits: Logits, positive: int
) -> dict[str, float]:
    """Return scores of predicted classes: accuracy, F1, Matthews' coefficient and calibration.

    They are in percent except ``nll`` and ``brier``.
    ``f1``: of the class ``positive`` where there are two; ``macro_f1``: the mean over classes.
    """
    num_classes = logits.shape[1]
    confusion = confusion_matrix(gold, predicted, num_classes=num_classes)
    scores = {"accuracy": 100.0 * float((gold == predicted).mean())}
    if num_classes == 2:
        scores["f1"] = 100.0 * class_scores(confusion)[positive].f1
    scores["macro_f1"] = 100.0 * macro_f1(confusion)
    scores["matthews"] = 100.0 * matthews(confusion)
    fit = calibration(logits, gold)
    return scores | {"ece": 100.0 * fit.ece, "nll": fit.nll, "brier": fit.brier}


def confusion_details(gold: Integers, predicted: Integers, labels: Sequence[str]) -> dict[str, Any]:
    """Return the confusion matrix and each label's scores, for the HTML report of a run."""
    confusion = confusion_matrix(gold, predicted, num_classes=len(labels))
    by_label = {
        label: score._asdict() for label, score in zip(labels, class_scores(confusion), strict=True)
    }
    return {"confusion": {"labels": list(labels), "counts": confusion.tolist()}, "labels": by_label}


def calibration_details(logits: Logits, gold: Integers, temperature: float) -> dict[str, Any]:
    """Return the reliability diagram's bins before and after temperature scaling."""
    found: dict[str, Any] = {"temperature": temperature}
    for name, divided in (("raw", logits), ("calibrated", logits / temperature)):
        fit = calibration(divided, gold)
        found[name] = {
            "ece": 100.0 * fit.ece,
            "confidence": [None if np.isnan(x) else float(x) for x in fit.confidence],
            "accuracy": [None if np.isnan(x) else float(x) for x in fit.accuracy],
            "counts": fit.counts.tolist(),
        }
    return {"reliability": found}
