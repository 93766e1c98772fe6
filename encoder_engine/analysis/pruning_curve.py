"""Scores a fine-tuned model while heads are removed, and writes the pruned model."""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from encoder_engine.analysis.pruning import (
    cut_heads,
    least_important,
    random_heads,
    zero_heads,
    zeroed,
)
from encoder_engine.tasks.task_folder import SavedTask, read_records, save_task

if TYPE_CHECKING:
    import os
    from collections.abc import Sequence

    import numpy.typing as npt

    from encoder_engine.prediction.predictor import Predictor

__all__ = ["CurvePoint", "prune_curve", "read_examples", "save_pruned"]


class CurvePoint(NamedTuple):
    """A model's main score without its ``removed`` least important attention heads.

    ``random``: the score without as many heads drawn at random.
    """

    removed: int
    score: float
    random: float


def read_examples(
    predictor: Predictor, files: Sequence[str], num_rows: int | None = None
) -> list[Any]:
    """Return the rows of files as examples of the predictor's task, read as in training.

    Raises :class:`RowError` for a row that the main score of the task does not score.
    """
    task = predictor.task
    rows = list(islice(read_records(task, files, predictor.tables), num_rows))
    examples = [task.read(record) for record in rows]
    unscored = task.unscored(examples, task.main_score)
    if unscored is not None:
        place, reason = unscored
        rows[place].refuse(reason)
    return examples


def prune_curve(
    predictor: Predictor,
    examples: Sequence[Any],
    importance: Sequence[npt.NDArray[np.float64]],
    *,
    points: int,
    seed: int = 0,
) -> list[CurvePoint]:
    """Score a model with 0 up to all of its attention heads removed, at ``points`` even steps.

    ``importance``: of the heads of each block, see :func:`head_importance`. ``seed``: of the heads
    that are drawn at random for comparison.
    """
    encoder = predictor.module.encoder
    num_heads = sum(map(len, importance))
    numbers = np.unique(np.linspace(0, num_heads, min(points, num_heads) + 1).astype(np.int64))

    def score(heads: Sequence[tuple[int, int]]) -> float:
        with zeroed(encoder, heads):
            predictions = predictor.task.revised(predictor.predict_examples(examples))
        return predictor.task.score(examples, predictions)[predictor.task.main_score]

    return [
        CurvePoint(
            number,
            score(least_important(importance, number)),
            score(random_heads(encoder, number, seed)),
        )
        for number in numbers.tolist()
    ]


def save_pruned(
    predictor: Predictor,
    heads: Sequence[tuple[int, int]],
    directory: str | os.PathLike[str],
    *,
    keep_shape: bool = False,
) -> None:
    """Cut heads (block, head) out of a model, and write it with its tokenizer and task.

    keep_shape: set the heads' output weights to 0 instead, a shape that every transformers loads.
    """
    if keep_shape:
        zero_heads(predictor.module.encoder, heads)
    else:
        cut_heads(predictor.module.encoder, heads)
    predictor.module.save_pretrained(directory)
    predictor.tokenizer.save(directory)
    save_task(directory, SavedTask(predictor.task, predictor.windows, predictor.tables))
