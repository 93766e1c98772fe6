"""Classifies texts, or scores them, by a fine-tuned model."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, Literal, get_args

from encoder_engine.errors import InputError, SequenceLengthError
from encoder_engine.inputs.records import Record
from encoder_engine.kinds.pairs import is_pair
from encoder_engine.prediction.predictor import BATCH_TOKENS, Predictor
from encoder_engine.strings import from_arrow
from encoder_engine.tasks.regression import RegressionTask
from encoder_engine.tasks.sequence_classification import SequenceClassificationTask
from encoder_engine.tasks.sequence_task import SequenceTask, TextExample
from encoder_engine.vectors.columns import PredictedRows

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from encoder_engine.tasks.task import Windows

    Rows = str | tuple[str, str] | Iterable[str | tuple[str, str]]

__all__ = ["Classifier", "Function", "LongTexts"]

Function = Literal["softmax", "sigmoid", "none"]
LongTexts = Literal["cut", "windows", "error"]


class Classifier(Predictor):
    """Predicts labels or scores of texts or text pairs."""

    tasks = ("sequence-classification", "regression")

    @property
    def labels(self) -> tuple[str, ...]:
        """The names of the labels; for a regression, the name of the score."""
        assert isinstance(self.task, SequenceTask)
        return self.task.label_names

    @property
    def problem(self) -> Literal["single", "multi", "regression"]:
        """Whether a text gets one label (``single``), any number (``multi``), or a score."""
        if isinstance(self.task, RegressionTask):
            return "regression"
        assert isinstance(self.task, SequenceClassificationTask)
        return "multi" if self.task.multi_label else "single"

    def predict(
        self,
        texts: Rows,
        *,
        thresholds: Mapping[str, float] | None = None,
        function: Function | None = None,
        long: LongTexts | None = None,
        batch_tokens: int = BATCH_TOKENS,
    ) -> Any:
        """Predict each text, or each pair of texts.

        A model of a ``finetune`` run reads texts or pairs, as in training; a published model reads
        both, also mixed. Returns a list, or the prediction of a single text or pair.

        thresholds: the least probability of each label, by name, if a text gets any number of
            labels; a label that is not named keeps its threshold.
        function: turns logits into probabilities: ``"softmax"``, ``"sigmoid"`` of each label
            alone, or ``"none"``, which returns the logits; None: as the model was trained.
        long: a text beyond the model's limit is truncated (``"cut"``, with a
            :class:`TruncationWarning`), is read in windows whose logits are averaged, or raises
            :class:`SequenceLengthError`; None: as in training; published models truncate.

        A :class:`~encoder_engine.tasks.sequence_classification.ClassPrediction` has labels and
        probabilities, a :class:`~encoder_engine.tasks.regression.ScorePrediction` a score. Raises
        :class:`InputError` for a row that is neither a text nor a pair.
        """
        task, windows = self._task(function, thresholds), self.windows
        if long is not None:
            _check_choice("long", long, get_args(LongTexts))
            windows = replace(windows, truncate=long != "windows")
        if self.is_published:
            # A list of two texts is no pair.
            single = isinstance(texts, str) or (isinstance(texts, tuple) and is_pair(texts))
        else:
            single = isinstance(texts, str) if task.pair is None else is_pair(texts)
        rows = [texts] if single or isinstance(texts, str) else from_arrow(texts)
        examples = [self.example(row, text) for row, text in enumerate(rows)]
        if long == "error":
            self._refuse_long(examples, windows)
        found: list[Any] = [None] * len(examples)
        # Texts and pairs are tokenized apart.
        for paired in (False, True):
            chosen = [row for row, one in enumerate(examples) if (one.pair is not None) == paired]
            predictions = self.predict_examples(
                [examples[row] for row in chosen],
                batch_tokens=batch_tokens,
                task=task,
                windows=windows,
            )
            for row, prediction in zip(chosen, predictions, strict=True):
                found[row] = prediction
        if function == "none" and self.problem != "regression":
            found = [one._replace(probabilities=one.logits) for one in found]
        return found[0] if single else found

    def _task(self, function: Function | None, thresholds: Mapping[str, float] | None) -> Any:
        """Return the model's task, with another function of the logits or other thresholds."""
        task: Any = self.task
        if function is not None:
            _check_choice("function", function, get_args(Function))
            if self.problem == "regression":
                if function == "softmax":
                    raise InputError("function='softmax' of one score is always 1; leave it out")
                activation = "identity" if function == "none" else function
                task = replace(task, activation=activation)
            elif function != "none":
                task = replace(task, multi_label=function == "sigmoid")
        if thresholds is not None:
            if not getattr(task, "multi_label", False):
                raise InputError(
                    "thresholds are of models with any number of labels, this one gives each text "
                    f"{'a score' if self.problem == 'regression' else 'one label'}; leave them out"
                )
            unknown = [name for name in thresholds if name not in task.labels]
            if unknown:
                raise InputError(
                    f"thresholds names {unknown[0]!r}; the labels are {', '.join(task.labels)}"
                )
            own = task.thresholds or (0.5,) * len(task.labels)
            both = zip(task.labels, own, strict=True)
            task = replace(task, thresholds=tuple(float(thresholds.get(*one)) for one in both))
        return task

    def example(self, row: int, content: Any) -> TextExample[Any]:
        """Make an unlabelled example of the task from a text or a pair of texts.

        Raises :class:`InputError`, with the row, for what the model does not read.
        """
        text = content
        task: Any = self.task
        paired = isinstance(text, (tuple, list)) and len(text) == 2
        known = isinstance(text, str) or paired
        if not known if self.is_published else paired != (task.pair is not None):
            expected = "a text or a pair of texts"
            if not self.is_published:
                expected = "a text" if task.pair is None else "a pair of texts"
            raise InputError(
                f"row {row} is {text!r:.60}, the model reads {expected} a row", row=row
            )
        first, second = text if paired else (text, None)
        record = Record({"text": first, "pair": second}, row=row)
        return TextExample(record.text("text"), record.text("pair") if paired else None)

    def columns(self, predictions: list[Any]) -> PredictedRows:
        """Return predictions as columns of a table.

        They are ``label`` and ``score``, or ``labels`` and ``scores`` where a text gets any number
        of labels: the labels that :meth:`predict` chooses and their probabilities; and
        ``probabilities`` of all labels. A regression has the column ``score`` alone.
        """
        if self.problem == "regression":
            scores = [one.score for one in predictions]
            return PredictedRows(columns={"score": scores}, types={"score": "double"})
        places = {name: number for number, name in enumerate(self.labels)}
        chosen = [[float(p.probabilities[places[n]]) for n in p.labels] for p in predictions]
        every = [one.probabilities.tolist() for one in predictions]
        types = {"probabilities": "list<double>"}
        if self.problem == "multi":
            labels = [list(one.labels) for one in predictions]
            return PredictedRows(
                columns={"labels": labels, "scores": chosen, "probabilities": every},
                types={"labels": "list<string>", "scores": "list<double>", **types},
            )
        return PredictedRows(
            columns={
                "label": [one.labels[0] for one in predictions],
                "score": [scores[0] for scores in chosen],
                "probabilities": every,
            },
            types={"label": "string", "score": "double", **types},
        )

    def _refuse_long(self, examples: list[Any], windows: Windows) -> None:
        for row, one in enumerate(examples):
            pairs = None if one.pair is None else [one.pair]
            length = len(self.tokenizer.encode_batch([one.text], pairs).ids)
            if length > windows.max_length:
                raise SequenceLengthError(
                    f"row {row} has {length} tokens, the model reads {windows.max_length}; shorten "
                    "it, or pass long='windows'",
                    row=row,
                )


def _check_choice(name: str, value: str, known: tuple[str, ...]) -> None:
    if value not in known:
        raise InputError(f"{name} must be one of {', '.join(known)}, got {value!r}")
