"""Classifies texts, or scores them, by a fine-tuned model."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from encoder_engine.errors import InputError
from encoder_engine.inputs.records import Record
from encoder_engine.kinds.pairs import is_pair
from encoder_engine.prediction.predictor import BATCH_TOKENS, Predictor
from encoder_engine.strings import from_arrow
from encoder_engine.tasks.sequence_task import SequenceTask

if TYPE_CHECKING:
    from collections.abc import Iterable

    Rows = str | tuple[str, str] | Iterable[str] | Iterable[tuple[str, str]]

__all__ = ["Classifier"]


class Classifier(Predictor):
    """Predicts labels or scores of texts, or of pairs of texts."""

    tasks = ("sequence-classification", "regression")

    def predict(self, texts: Rows, *, batch_tokens: int = BATCH_TOKENS) -> Any:
        """Predict each text, or each pair of texts where the model was trained on pairs.

        Returns a list, or the prediction of a single text or pair.

        A :class:`~encoder_engine.tasks.sequence_classification.ClassPrediction` has labels and
        probabilities, a :class:`~encoder_engine.tasks.regression.ScorePrediction` a score.
        """
        task = self.task
        assert isinstance(task, SequenceTask)
        records = []
        single = isinstance(texts, str) if task.pair is None else is_pair(texts)
        for row, text in enumerate([texts] if single else from_arrow(texts)):
            paired = isinstance(text, (tuple, list)) and len(text) == 2
            if paired != (task.pair is not None) or (isinstance(texts, str) and not single):
                expected = "a pair of texts" if task.pair is not None else "a text"
                raise InputError(
                    f"row {row} is {text!r:.60}, the model reads {expected} a row", row=row
                )
            values = {task.text: text[0], task.pair: text[1]} if paired else {task.text: text}
            records.append(Record({str(name): value for name, value in values.items()}, row=row))
        found = self.predict_records(records, batch_tokens=batch_tokens)
        return found[0] if single else found
