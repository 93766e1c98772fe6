"""Answers questions from their contexts by a fine-tuned model."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from encoder_engine.errors import InputError
from encoder_engine.inputs.records import Record
from encoder_engine.kinds.pairs import is_pair
from encoder_engine.prediction.predictor import BATCH_TOKENS, Predictor
from encoder_engine.strings import from_arrow
from encoder_engine.tasks.question_answering import QuestionAnsweringTask

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
        task = self.task
        assert isinstance(task, QuestionAnsweringTask)
        records = []
        single = is_pair(questions)
        for row, pair in enumerate([questions] if single else from_arrow(questions)):
            if not isinstance(pair, (tuple, list)) or len(pair) != 2:
                raise InputError(
                    f"row {row} is {pair!r:.60}; give a pair of a question and its context", row=row
                )
            records.append(
                Record({task.question: pair[0], task.context: pair[1], task.id: str(row)}, row=row)
            )
        found = self.predict_records(records, batch_tokens=batch_tokens)
        return found[0] if single else found
