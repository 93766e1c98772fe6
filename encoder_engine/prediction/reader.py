"""Answers questions from their contexts by a fine-tuned model."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from encoder_engine.errors import InputError
from encoder_engine.inputs.records import Record
from encoder_engine.kinds.pairs import is_pair
from encoder_engine.prediction.predictor import BATCH_TOKENS, Predictor
from encoder_engine.strings import from_arrow
from encoder_engine.tasks.question_answering import QuestionAnsweringTask
from encoder_engine.vectors.columns import PredictedRows

if TYPE_CHECKING:
    from collections.abc import Iterable

    Rows = tuple[str, str] | Iterable[tuple[str, str]]

__all__ = ["Reader"]


class Reader(Predictor):
    """Answers questions by spans of their contexts, of any length."""

    tasks = ("question-answering",)

    def predict(self, questions: Rows, *, batch_tokens: int = BATCH_TOKENS) -> Any:
        """Return the answer to each pair of a question and its context, or to a single pair.

        An :class:`~encoder_engine.tasks.question_answering.AnswerPrediction` has the text, its
        characters in the context, its probability and the next best answers. Raises
        :class:`InputError` for a row that is not a pair.
        """
        single = is_pair(questions)
        rows = enumerate([questions] if single else from_arrow(questions))
        examples = [self.example(row, pair) for row, pair in rows]
        found = self.predict_examples(examples, batch_tokens=batch_tokens)
        return found[0] if single else found

    def example(self, row: int, content: Any) -> Any:
        """Return a pair of a question and its context as the task reads it."""
        task = self.task
        assert isinstance(task, QuestionAnsweringTask)
        if not isinstance(content, (tuple, list)) or len(content) != 2:
            raise InputError(
                f"row {row} is {content!r:.60}; give a pair of a question and its context", row=row
            )
        question, context = content
        return task.read(
            Record({task.question: question, task.context: context, task.id: str(row)}, row=row)
        )

    def columns(self, predictions: list[Any]) -> PredictedRows:
        """Return ``answer``, its characters ``start`` and ``stop``, and ``score``."""
        return PredictedRows(
            columns={
                "answer": [one.text for one in predictions],
                "start": [one.start for one in predictions],
                "stop": [one.stop for one in predictions],
                "score": [one.probability for one in predictions],
            },
            types={"answer": "string", "start": "int64", "stop": "int64", "score": "double"},
        )
