"""Regression on texts, or on pairs of texts, trained with the mean squared error."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar, Literal, NamedTuple, Self

import numpy as np

from encoder_engine.dataclass import dataclass
from encoder_engine.errors import InputError
from encoder_engine.metrics.correlation import pearson, spearman
from encoder_engine.tasks.labels import unfit_for_correlation
from encoder_engine.tasks.multi_label import sigmoid
from encoder_engine.tasks.sequence_task import SequenceTask, TextExample, mean_of_windows

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy.typing as npt
    from torch import Tensor

    from encoder_engine.inputs.records import Record
    from encoder_engine.tasks.items import Items
    from encoder_engine.tasks.task import Outputs

__all__ = ["RegressionTask", "ScorePrediction"]


class ScorePrediction(NamedTuple):
    """A predicted score: the mean over a text's windows, not clipped."""

    score: float


@dataclass(frozen=True, kw_only=True)
class RegressionTask(SequenceTask[float, ScorePrediction]):
    """Predicts a score of a text or a pair of texts.

    ``metric``: the score that selects the best checkpoint.
    ``activation``: ``"sigmoid"`` makes the score a probability, for models that were trained as
    transformers' classifiers of one label.
    """

    name: ClassVar[str] = "regression"
    loss_name: ClassVar[str] = "squared_error"

    label: str = "score"
    metric: str = "spearman"
    activation: Literal["identity", "sigmoid"] = "identity"

    @property
    def main_score(self) -> str:
        """The name of the score that selects the best checkpoint."""
        return self.metric

    @property
    def label_names(self) -> tuple[str, ...]:
        """The name of the head's single output."""
        return (self.label,)

    @property
    def problem_type(self) -> str:
        """``problem_type`` of transformers' config.json, which decides the loss of a head."""
        return "regression"

    def read_gold(self, record: Record) -> float:
        """Return the gold score of a row."""
        return record.number_of(self.label)

    def fit(self, examples: Sequence[TextExample[float]]) -> Self:
        """Return the task unchanged; raises :class:`InputError` if all gold scores are equal."""
        golds = {example.gold for example in examples if example.gold is not None}
        if len(golds) < 2:
            shown = ", ".join(map(str, golds)) or "no row has one"
            raise InputError(
                f"the training rows have one score ({shown}): there is nothing to learn; check the "
                f"column {self.label!r}"
            )
        return self

    def unscored(
        self, examples: Sequence[TextExample[float]], metric: str | None = None
    ) -> tuple[int, str] | None:
        """Return the index of the first example that ``metric`` cannot score, and why; or None."""
        found = super().unscored(examples, metric)
        if found is not None or metric not in ("spearman", "pearson"):
            return found
        reason = unfit_for_correlation(metric, [one.gold or 0.0 for one in examples])
        if reason is None:
            return None
        return 0, f"{reason}, or select by selection.metric=mse with selection.goal=min"

    def targets(self, golds: Sequence[float]) -> npt.NDArray[Any]:
        """Return gold scores as the targets of the loss, float64 [N]."""
        return np.array(golds, np.float64)

    def loss(self, logits_BC: Tensor, target: Tensor) -> Tensor:
        """Return the squared error, summed over the rows of a batch."""
        return (logits_BC.squeeze(1) - target.to(logits_BC.dtype)).square().sum()

    def decode(
        self, outputs: Outputs, items: Items, examples: Sequence[TextExample[float]]
    ) -> list[ScorePrediction]:
        """Predict the score of each text: the mean over its windows."""
        means = mean_of_windows(outputs, items, len(examples))
        if self.activation == "sigmoid":
            means = sigmoid(means)
        return [ScorePrediction(score) for score in means[:, 0].tolist()]

    def score_names(self, examples: Sequence[TextExample[float]]) -> tuple[str, ...]:
        """Return the names of the scores: correlations, and mean errors."""
        del examples
        return "spearman", "pearson", "mse", "mae"

    def score(
        self, examples: Sequence[TextExample[float]], predictions: Sequence[ScorePrediction]
    ) -> dict[str, float]:
        """Return correlations in percent (NaN for constant predictions), and mean errors."""
        gold, predicted = self.targets([e.gold or 0.0 for e in examples]), _scores(predictions)
        errors = predicted - gold
        return {
            "spearman": 100.0 * spearman(gold, predicted),
            "pearson": 100.0 * pearson(gold, predicted),
            "mse": float((errors**2).mean()),
            "mae": float(np.abs(errors).mean()),
        }

    def row_scores(
        self, examples: Sequence[TextExample[float]], predictions: Sequence[ScorePrediction]
    ) -> npt.NDArray[np.float64]:
        """Return minus the squared error of each row's predicted score."""
        gold = self.targets([example.gold or 0.0 for example in examples])
        errors: npt.NDArray[np.float64] = _scores(predictions) - gold
        return -(errors**2)

    def degenerate(self, predictions: Sequence[ScorePrediction]) -> str | None:
        """Return a warning's text if several rows all get the same score; else None."""
        if len(predictions) < 2 or len(set(predictions)) > 1:
            return None
        return f"every row is predicted as {predictions[0].score:g}: a constant has no correlation"

    def to_record(self, example: TextExample[float], prediction: ScorePrediction) -> dict[str, Any]:
        """Return an example with its prediction as the JSON object that ``predict`` writes."""
        found: dict[str, Any] = {self.text: example.text}
        if self.pair is not None:
            found[self.pair] = example.pair
        return found | {"prediction": prediction.score}


def _scores(predictions: Sequence[ScorePrediction]) -> npt.NDArray[np.float64]:
    return np.array([prediction.score for prediction in predictions], np.float64)
