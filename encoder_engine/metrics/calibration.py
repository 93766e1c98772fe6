"""Calibration of probabilities: expected calibration error, Brier score, temperature."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from encoder_engine.errors import InputError
from encoder_engine.metrics.pairing import paired

if TYPE_CHECKING:
    import numpy.typing as npt

    Logits = npt.NDArray[np.float64]

__all__ = ["Calibration", "calibration", "fit_temperature"]

NUM_BINS = 15
# Golden-section search over log(temperature), from 1/100 to 100, until it moves by less than 1e-10.
LEAST, MOST, CLOSE = np.log(0.01), np.log(100.0), 1e-10


class Calibration(NamedTuple):
    """The calibration errors of probabilities, and the bins of a reliability diagram.

    ``ece``: the expected calibration error over 15 equal bins of the top probability (Guo et al.
    2017).
    ``brier``: the mean squared distance of the probabilities from the one-hot label, summed over
    classes.
    ``nll``: the mean negative log-likelihood, in nats. ``confidence``, ``accuracy``, ``counts``
    [15]: each bin's mean top probability, share of right predictions, and number of rows; the first
    two are NaN for an empty bin.
    """

    ece: float
    brier: float
    nll: float
    confidence: npt.NDArray[np.float64]
    accuracy: npt.NDArray[np.float64]
    counts: npt.NDArray[np.int64]


def calibration(logits: npt.ArrayLike, gold: npt.ArrayLike) -> Calibration:
    """Compare softmax(logits [N, C]) with the gold classes [N]. Raises :class:`InputError`."""
    scores, classes = _checked(logits, gold)
    log_probabilities = _log_softmax(scores)
    probabilities = np.exp(log_probabilities)
    rows = np.arange(len(classes))
    top, right = probabilities.max(1), probabilities.argmax(1) == classes
    places = np.minimum((top * NUM_BINS).astype(np.int64), NUM_BINS - 1)
    counts = np.bincount(places, minlength=NUM_BINS)
    with np.errstate(invalid="ignore"):
        confidence = np.bincount(places, top, NUM_BINS) / counts
        accuracy = np.bincount(places, right, NUM_BINS) / counts
    there = counts > 0
    gap = np.abs(confidence - accuracy)[there] @ counts[there] / len(classes)
    one_hot = np.zeros_like(probabilities)
    one_hot[rows, classes] = 1.0
    return Calibration(
        ece=float(gap),
        brier=float(((probabilities - one_hot) ** 2).sum(1).mean()),
        nll=float(-log_probabilities[rows, classes].mean()),
        confidence=confidence,
        accuracy=accuracy,
        counts=counts,
    )


def fit_temperature(logits: npt.ArrayLike, gold: npt.ArrayLike) -> float:
    """Return the temperature that minimises the NLL of softmax(logits / temperature).

    The NLL is convex in 1 / temperature and so has one minimum, searched between 0.01 and 100. Fit
    on held-out rows. Raises :class:`InputError`.
    """
    scores, classes = _checked(logits, gold)
    rows = np.arange(len(classes))

    def loss(log_temperature: float) -> float:
        return float(-_log_softmax(scores * np.exp(-log_temperature))[rows, classes].mean())

    low, high = float(LEAST), float(MOST)
    ratio = (np.sqrt(5.0) - 1.0) / 2.0
    while high - low > CLOSE:
        left, right = high - ratio * (high - low), low + ratio * (high - low)
        low, high = (low, right) if loss(left) <= loss(right) else (left, high)
    return float(np.exp((low + high) / 2.0))


def _checked(logits: npt.ArrayLike, gold: npt.ArrayLike) -> tuple[Logits, npt.NDArray[np.int64]]:
    scores = np.asarray(logits, np.float64)
    if scores.ndim != 2 or not np.isfinite(scores).all():
        raise InputError(f"logits must be finite, of shape [N, C], got shape {scores.shape}")
    classes, _ = paired(gold, np.zeros(len(scores), np.int64), num_classes=scores.shape[1])
    return scores, classes


def _log_softmax(scores: Logits) -> Logits:
    shifted: Logits = scores - scores.max(1, keepdims=True)
    result: Logits = shifted - np.log(np.exp(shifted).sum(1, keepdims=True))
    return result
