"""Evaluates a task's model on dev rows, during a run and at its end."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

from encoder_engine.dataclass import dataclass
from encoder_engine.metrics.intervals import bootstrap
from encoder_engine.tasks.engines.engine import task_engine
from encoder_engine.tasks.predicting import predict_batches

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import numpy as np
    import numpy.typing as npt
    from torch import nn

    from encoder_engine.finetuning.data import TaskData
    from encoder_engine.metrics.intervals import Interval
    from encoder_engine.tasks.items import Items
    from encoder_engine.tasks.models.task_model import TaskModel
    from encoder_engine.tasks.task import Task
    from encoder_engine.training.world import World

__all__ = ["DevEvaluation", "Evaluated", "score_intervals"]

# The rows that all bootstrap samples of a score draw in total, which takes seconds for any number
# of dev rows; but no fewer samples than LEAST_SAMPLES.
MOST_DRAWN, LEAST_SAMPLES = 2_000_000, 100


@dataclass(frozen=True, kw_only=True, eq=False)
class Evaluated:
    """A model's predictions for the dev rows, and their scores.

    ``task``: the task with the decoding settings, such as thresholds, fitted on these rows.
    """

    task: Task[Any, Any]
    predictions: list[Any]
    scores: dict[str, float]


class DevEvaluation:
    """Predicts the dev rows with the code that prediction uses, and scores all of them together.

    ``items``: a function that returns the tokenized dev rows of ``data``, with the outputs of a
    frozen encoder if these are cached; called by every evaluation.
    """

    def __init__(
        self, data: TaskData, items: Callable[[], Items], world: World, *, batch_tokens: int
    ) -> None:
        self._data, self._items = data, items
        self._world, self._batch_tokens = world, batch_tokens

    def __call__(self, model: nn.Module) -> dict[str, float]:
        """Return a model's scores on the dev rows."""
        return self.evaluate(model).scores

    def evaluate(self, model: nn.Module) -> Evaluated:
        """Return a model's predictions for the dev rows and their scores: :class:`Evaluated`."""
        data = self._data
        assert data.dev is not None
        # DDP wraps the model, and has no other method than forward.
        inner = cast("TaskModel", getattr(model, "module", model))
        mine = list(
            predict_batches(
                task_engine(inner),
                data.task,
                self._items(),
                data.dev.examples,
                batch_tokens=self._batch_tokens,
                part=(self._world.rank, self._world.size),
            )
        )
        parts = sorted(
            (part for parts in self._world.gather_values(mine) for part in parts),
            key=lambda p: p[0],
        )
        predictions = [prediction for _, part in parts for prediction in part]
        task = data.task.tuned(data.dev.examples, predictions)
        predictions = task.revised(predictions)
        scores = task.score(data.dev.examples, predictions)
        return Evaluated(task=task, predictions=predictions, scores=scores)


def score_intervals(
    task: Task[Any, Any],
    examples: Sequence[Any],
    predictions: Sequence[Any],
    *,
    samples: int,
    level: float,
) -> dict[str, Interval]:
    """Return the bootstrap interval of each score of predictions, by the score's name.

    All scores share the bootstrap samples. ``samples``: the most of them; many rows get fewer, so
    that it takes seconds. ``level``: the confidence level.
    """
    samples = min(samples, max(LEAST_SAMPLES, MOST_DRAWN // max(len(examples), 1)))
    found: list[dict[str, float]] = []
    score_rows = task.resampling(examples, predictions)

    def score_of(name: str) -> Interval:
        place = -1

        def score(rows: npt.NDArray[np.int64]) -> float:
            nonlocal place
            place += 1
            if place == len(found):
                found.append(score_rows(rows))
            return found[place][name]

        # The seed is the same: every score has the same samples.
        return bootstrap(
            score, len(examples), groups=task.groups(examples), samples=samples, level=level
        )

    return {name: score_of(name) for name in task.score(examples, predictions)}
