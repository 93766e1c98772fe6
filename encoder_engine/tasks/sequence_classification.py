"""Classification of texts, or of pairs of texts: one label, or any number of them.

Single-label: softmax and cross-entropy. Multi-label: a sigmoid for each label, binary
cross-entropy, and a threshold for each label, fitted on dev rows by F1.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, ClassVar, Literal, NamedTuple, Self

import numpy as np

from encoder_engine.dataclass import dataclass
from encoder_engine.errors import ConfigError
from encoder_engine.metrics.calibration import fit_temperature
from encoder_engine.tasks import models
from encoder_engine.tasks.labels import (
    balanced_weights,
    calibration_details,
    check_label,
    collect_labels,
    confusion_details,
    scores_of_classes,
    softmax,
)
from encoder_engine.tasks.multi_label import (
    best_thresholds,
    scores_of_label_sets,
    sigmoid,
)
from encoder_engine.tasks.sequence_task import SequenceTask, TextExample, mean_of_windows

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy.typing as npt
    from torch import Tensor

    from encoder_engine.inputs.records import Record
    from encoder_engine.tasks.items import Items
    from encoder_engine.tasks.task import Outputs

__all__ = ["ClassPrediction", "SequenceClassificationTask"]

Labels = tuple[str, ...]


class ClassPrediction(NamedTuple):
    """The prediction for one text.

    ``labels``: one label; in multi-label classification any number of labels.
    ``probabilities`` float64 [C], in the order of the task's labels.
    ``logits`` float64 [C]: the mean over the windows, before temperature scaling.
    """

    labels: Labels
    probabilities: npt.NDArray[np.float64]
    logits: npt.NDArray[np.float64]


@dataclass(frozen=True, kw_only=True)
class SequenceClassificationTask(SequenceTask[Labels, ClassPrediction]):
    """Classifies texts or pairs of texts; the gold value of a row is a tuple of labels.

    ``labels``: the names in the order of the head's outputs; empty: the labels in the training
    rows.
    ``positive``: with two labels, the one whose F1 is reported as ``f1``; None: the second.
    ``multi_label``: a row has any number of labels: a list, or names joined by ``separator``.
    ``metric``: the score that selects the best checkpoint; None: accuracy, or micro F1.
    ``label_smoothing``: the part of the target probability spread evenly over all labels.
    ``class_weights``: ``"balanced"`` weighs a label by its rarity in the training rows.
    ``calibrate``: fit a temperature on dev rows.

    Fitted in training: ``weights``, ``thresholds`` of the probabilities, ``temperature``.
    """

    name: ClassVar[str] = "sequence-classification"

    labels: Labels = ()
    positive: str | None = None
    multi_label: bool = False
    separator: str = ","
    metric: str | None = None
    label_smoothing: float = 0.0
    class_weights: Literal["none", "balanced"] = "none"
    calibrate: bool = True
    weights: tuple[float, ...] = ()
    thresholds: tuple[float, ...] = ()
    temperature: float = 1.0

    def __post_init__(self) -> None:
        if len(self.labels) == 1:
            raise ConfigError(f"task.labels must be two or more names, got {list(self.labels)}")
        if self.positive is not None and self.labels and self.positive not in self.labels:
            raise ConfigError(f"task.positive is {self.positive!r}, none of {list(self.labels)}")
        if not 0.0 <= self.label_smoothing < 1.0:
            raise ConfigError(f"task.label_smoothing is {self.label_smoothing}; expected 0 to 1")
        if self.multi_label and (self.label_smoothing or self.class_weights != "none"):
            raise ConfigError("task.multi_label supports neither label_smoothing nor class_weights")

    @property
    def loss_name(self) -> str:  # type: ignore[override]
        """The name of the loss in the log."""
        return "binary_cross_entropy" if self.multi_label else "cross_entropy"

    @property
    def main_score(self) -> str:
        """The name of the score that selects the best checkpoint."""
        return self.metric or ("micro_f1" if self.multi_label else "accuracy")

    @property
    def label_names(self) -> Labels:
        """The labels, in the order of the head's outputs."""
        return self.labels

    @property
    def problem_type(self) -> str:
        """``problem_type`` of transformers' config.json, which decides the loss of a head."""
        kind = "multi" if self.multi_label else "single"
        return f"{kind}_label_classification"

    def read_gold(self, record: Record) -> Labels:
        """Return a row's gold labels.

        Raises :class:`RowError` for a label that is not in ``labels``, unless these are empty, and
        for one that is named twice.
        """
        if not self.multi_label:
            name = record.name_of(self.label)
            check_label(record, name, self.labels)
            return (name,)
        value = record.get(self.label)
        if isinstance(value, str):
            value = [name.strip() for name in record.text(self.label).split(self.separator)]
            names = [name for name in value if name]
        else:
            names = record.names_of(self.label)
        for name in names:
            check_label(record, name, self.labels)
        if len(set(names)) < len(names):
            record.refuse(f"{self.label} names a label twice: {names}; name each once")
        return tuple(sorted(names))

    def fit(self, examples: Sequence[TextExample[Labels]]) -> Self:
        """Return the task with the labels and the class weights of the training rows."""
        if len(set(self.labels)) < len(self.labels):
            raise ConfigError(f"task.labels must be different names, got {list(self.labels)}")
        golds = [example.gold for example in examples if example.gold is not None]
        present = collect_labels(name for gold in golds for name in gold)
        fitted = self if self.labels else replace(self, labels=present)
        if self.class_weights == "balanced":
            classes = np.array([fitted.labels.index(gold[0]) for gold in golds])
            return replace(fitted, weights=balanced_weights(classes, len(fitted.labels)))
        return fitted

    def targets(self, golds: Sequence[Labels]) -> npt.NDArray[Any]:
        """Return gold labels as targets: int64 [N]; for multi-label 0 and 1, float32 [N, C]."""
        places = {name: number for number, name in enumerate(self.labels)}
        if not self.multi_label:
            return np.array([places[gold[0]] for gold in golds], np.int64)
        found = np.zeros((len(golds), len(places)), np.float32)
        for row, gold in enumerate(golds):
            found[row, [places[name] for name in gold]] = 1.0
        return found

    def loss(self, logits_BC: Tensor, target: Tensor) -> Tensor:
        """Return the cross-entropy, summed over rows; for multi-label, averaged over labels."""
        if self.multi_label:
            return models.label_set_loss(logits_BC, target)
        return models.class_loss(
            logits_BC, target, weights=self.weights, label_smoothing=self.label_smoothing
        )

    def decode(
        self, outputs: Outputs, items: Items, examples: Sequence[TextExample[Labels]]
    ) -> list[ClassPrediction]:
        """Predict each text from the mean logits of its windows."""
        return self._decide(mean_of_windows(outputs, items, len(examples)))

    def _decide(self, logits: npt.NDArray[np.float64]) -> list[ClassPrediction]:
        scaled = logits / self.temperature
        if not self.multi_label:
            probabilities, best = softmax(scaled), logits.argmax(1)
            return [
                ClassPrediction((self.labels[place],), probability, row)
                for place, probability, row in zip(
                    best.tolist(), probabilities, logits, strict=True
                )
            ]
        probabilities = sigmoid(scaled)
        chosen = probabilities >= np.array(self.thresholds or [0.5] * len(self.labels))
        return [
            ClassPrediction(
                tuple(name for name, there in zip(self.labels, row, strict=True) if there),
                probability,
                logit,
            )
            for row, probability, logit in zip(chosen.tolist(), probabilities, logits, strict=True)
        ]

    def tuned(
        self, examples: Sequence[TextExample[Labels]], predictions: Sequence[ClassPrediction]
    ) -> Self:
        """Return the task with the temperature or the thresholds fitted on these (dev) rows."""
        logits = _logits(predictions)
        if self.multi_label:
            found = best_thresholds(sigmoid(logits), self._gold(examples))
            return replace(self, thresholds=found)
        if not self.calibrate:
            return self
        return replace(self, temperature=fit_temperature(logits, self._gold(examples)))

    def revised(self, predictions: Sequence[ClassPrediction]) -> list[ClassPrediction]:
        """Return the predictions with this task's thresholds and temperature applied."""
        return self._decide(_logits(predictions)) if predictions else []

    def score_names(self, examples: Sequence[TextExample[Labels]]) -> tuple[str, ...]:
        """Return the names of the scores, which depend on the number of labels."""
        del examples
        if self.multi_label:
            return "micro_f1", "macro_f1", "exact_match"
        binary = ("f1",) if len(self.labels) == 2 else ()
        return "accuracy", *binary, "macro_f1", "matthews", "ece", "nll", "brier"

    def score(
        self, examples: Sequence[TextExample[Labels]], predictions: Sequence[ClassPrediction]
    ) -> dict[str, float]:
        """Return the scores, in percent except ``nll`` and ``brier``.

        Calibration is measured before temperature scaling.
        """
        gold = self._gold(examples)
        if self.multi_label:
            return scores_of_label_sets(gold, self._chosen(predictions))
        positive = self.labels.index(self.positive) if self.positive else 1
        predicted = self._chosen(predictions)
        return scores_of_classes(gold, predicted, _logits(predictions), positive)

    def row_scores(
        self, examples: Sequence[TextExample[Labels]], predictions: Sequence[ClassPrediction]
    ) -> npt.NDArray[np.float64]:
        """Return 1 for each row whose labels are all right, else 0."""
        right = self._gold(examples) == self._chosen(predictions)
        scores: npt.NDArray[np.float64] = right.reshape(len(examples), -1).all(1).astype(np.float64)
        return scores

    def _gold(self, examples: Sequence[TextExample[Labels]]) -> npt.NDArray[Any]:
        return self.targets([example.gold for example in examples if example.gold is not None])

    def _chosen(self, predictions: Sequence[ClassPrediction]) -> npt.NDArray[Any]:
        return self.targets([prediction.labels for prediction in predictions])

    def degenerate(self, predictions: Sequence[ClassPrediction]) -> str | None:
        """Return a warning's text if several rows all get the same labels; else None."""
        different = {prediction.labels for prediction in predictions}
        if len(different) != 1 or len(predictions) < 2:
            return None
        (only,) = different
        return f"every row is predicted as {', '.join(only) or 'no label'}: nothing was learned"

    def details(
        self, examples: Sequence[TextExample[Labels]], predictions: Sequence[ClassPrediction]
    ) -> dict[str, Any]:
        """Return the confusion matrix and the reliability diagram, which the run's report shows.

        For multi-label classification return the thresholds instead, for ``report.json`` alone.
        """
        gold, predicted = self._gold(examples), self._chosen(predictions)
        if self.multi_label:
            return {"thresholds": dict(zip(self.labels, self.thresholds, strict=False))}
        return confusion_details(gold, predicted, self.labels) | calibration_details(
            _logits(predictions), gold, self.temperature
        )

    def to_record(
        self, example: TextExample[Labels], prediction: ClassPrediction
    ) -> dict[str, Any]:
        """Return an example with its prediction as the JSON object that ``predict`` writes."""
        found: dict[str, Any] = {self.text: example.text}
        if self.pair is not None:
            found[self.pair] = example.pair
        names = list(prediction.labels) if self.multi_label else prediction.labels[0]
        probabilities = prediction.probabilities.tolist()
        return found | {
            "prediction": names,
            "probabilities": dict(zip(self.labels, probabilities, strict=True)),
        }


def _logits(predictions: Sequence[ClassPrediction]) -> npt.NDArray[np.float64]:
    return np.stack([prediction.logits for prediction in predictions])
