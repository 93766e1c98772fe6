"""Scores one run's model on labelled files, or compares the models of two runs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from encoder_engine.dataclass import dataclass
from encoder_engine.errors import InputError
from encoder_engine.finetuning.data import read_scored_rows
from encoder_engine.finetuning.evaluation import score_intervals
from encoder_engine.metrics.intervals import paired_randomisation
from encoder_engine.prediction.predictor import Predictor

if TYPE_CHECKING:
    import os
    from collections.abc import Sequence

    from encoder_engine.engine.protocol import EngineChoice
    from encoder_engine.finetuning.data import Examples
    from encoder_engine.metrics.intervals import Interval

__all__ = ["Scored", "evaluate_files"]


@dataclass(frozen=True, kw_only=True)
class Scored:
    """Scores of a model on labelled rows.

    ``degenerate``: why the model learned nothing, such as the same class for all rows; None: it
    learned something.
    ``against``: the scores of the model that it is compared with. ``p_value``: the p-value of a
    paired randomisation test on both models' row scores; rows of one group, such as one query's,
    are swapped together.
    """

    num_rows: int
    scores: dict[str, float]
    intervals: dict[str, Interval]
    degenerate: str | None
    against: dict[str, float] | None = None
    p_value: float | None = None


def evaluate_files(
    run: str | os.PathLike[str],
    files: Sequence[str],
    *,
    header: Sequence[str] | None = None,
    quoting: bool | None = None,
    against: str | os.PathLike[str] | None = None,
    samples: int = 1000,
    device: str = "auto",
    engine: EngineChoice = "auto",
) -> Scored:
    """Score a run's model on labelled files.

    ``against``: another run, whose model is scored on the same rows and compared.
    ``header``, ``quoting``: the format of .csv and .tsv files; None: as in each run's training.
    ``samples``: the most bootstrap samples of the scores' intervals; 0: no intervals.
    ``engine``: ``"torch"`` repeats the evaluation in training bit for bit on the same machine.

    Raises :class:`RowError` for a row that cannot be scored, and :class:`InputError` where the two
    models are for different tasks, or have no score in common.
    """
    predictor = Predictor.from_pretrained(run, device, engine=engine)
    task = predictor.task

    def read(one: Predictor) -> Examples:
        return read_scored_rows(one.task, files, one.tables.replaced(header, quoting))

    rows = read(predictor)
    predictions = predictor.predict_examples(rows.examples)
    other_scores, p_value = None, None
    if against is not None:
        other = Predictor.from_pretrained(against, device, engine=engine)
        if other.task.name != task.name:
            raise InputError(
                f"{run} is a model for {task.name}, {against} one for {other.task.name}: their "
                "scores cannot be compared"
            )
        others = read(other)
        names = [one.score_names(rows.examples) for one in (task, other.task)]
        if set(names[0]).isdisjoint(names[1]):
            raise InputError(
                f"{run} gives the scores {', '.join(names[0])} of these rows, {against} "
                f"{', '.join(names[1])}: they cannot be compared"
            )
        found = other.predict_examples(others.examples)
        other_scores = other.task.score(others.examples, found)
        p_value = paired_randomisation(
            task.row_scores(rows.examples, predictions),
            other.task.row_scores(others.examples, found),
            groups=task.groups(rows.examples),
        )
    intervals = {}
    if samples:
        intervals = score_intervals(task, rows.examples, predictions, samples=samples, level=0.95)
    return Scored(
        num_rows=len(rows),
        scores=task.score(rows.examples, predictions),
        intervals=intervals,
        degenerate=task.degenerate(predictions),
        against=other_scores,
        p_value=p_value,
    )
