"""Scores of vectors beside a teacher's, of each row and of all."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy.typing as npt

    from encoder_engine.tasks.embedders.examples import RetrievalExample
    from encoder_engine.tasks.embedders.retrieval_task import RetrievalPrediction

    Scores = npt.NDArray[np.float64]

__all__ = ["COSINE", "NEGATIVE_MSE", "TEACHER_SCORES", "mean_teacher_scores", "teacher_scores"]

# Cosines, and minus the mean squared error of features as sentence-transformers' MSEEvaluator
# calls it; both times 100, so that higher is better.
TEACHER_SCORES = COSINE, NEGATIVE_MSE = "cosine", "negative_mse"


def teacher_scores(
    examples: Sequence[RetrievalExample],
    predictions: Sequence[RetrievalPrediction[npt.NDArray[np.floating]]],
    *,
    normalized: bool,
) -> dict[str, Scores]:
    """Return the scores of each row's vector beside its teacher's, float64 [N].

    ``normalized``: vectors are divided by their Euclidean norm first, as Matryoshka's prefixes are.
    Where one of the two vectors is shorter, the leading features of the other are compared.
    """
    teachers = np.array([example.vector for example in examples], np.float64)
    vectors = np.stack([found.query for found in predictions]).astype(np.float64)
    width = min(teachers.shape[1], vectors.shape[1])
    teachers, vectors = teachers[:, :width], vectors[:, :width]
    if normalized:
        vectors = vectors / _norms(vectors)
    cosines = ((vectors / _norms(vectors)) * (teachers / _norms(teachers))).sum(1)
    errors = np.square(vectors - teachers).mean(1)
    return {COSINE: 100.0 * cosines, NEGATIVE_MSE: -100.0 * errors}


def mean_teacher_scores(scores: dict[str, Scores]) -> dict[str, float]:
    """Return the mean of each score over the rows."""
    return {name: float(values.mean()) for name, values in scores.items()}


def _norms(vectors: Scores) -> Scores:
    found: Scores = np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), 1e-12)
    return found
