"""Multiple choice: chooses between endings of a context by a fine-tuned model."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from encoder_engine.errors import InputError
from encoder_engine.inputs.records import Record
from encoder_engine.prediction.predictor import BATCH_TOKENS, Predictor
from encoder_engine.strings import from_arrow
from encoder_engine.tasks.multiple_choice import ChoiceExample, MultipleChoiceTask

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    Rows = tuple[str, Sequence[str]] | Iterable[tuple[str, Sequence[str]]]

__all__ = ["Chooser"]


class Chooser(Predictor):
    """Chooses one of several endings of a context."""

    tasks = ("multiple-choice",)

    def predict(self, questions: Rows, *, batch_tokens: int = BATCH_TOKENS) -> Any:
        """Choose an ending for each context, given pairs of a context and a list of its endings.

        Returns a list, or the prediction of a single pair. A
        :class:`~encoder_engine.tasks.multiple_choice.ChoicePrediction` has the index of the chosen
        ending and the probabilities of all endings. A stem, if the task has one, is a part of each
        ending. Raises :class:`InputError` for a row of another form.
        """
        assert isinstance(self.task, MultipleChoiceTask)
        examples = []
        single = isinstance(questions, (tuple, list)) and isinstance(next(iter(questions), 0), str)
        rows: Iterable[Any] = [questions] if single else from_arrow(questions)
        for row, question in enumerate(rows):
            paired = isinstance(question, (tuple, list)) and len(question) == 2
            listed = paired and not isinstance(question[1], str) and hasattr(question[1], "__len__")
            if not listed or len(question[1]) < 2:
                raise InputError(
                    f"row {row} is {question!r:.60}; give a pair of a context and a list of two or "
                    "more endings",
                    row=row,
                )
            record = Record({"context": question[0], "endings": question[1]}, row=row)
            examples.append(
                ChoiceExample(record.text("context"), tuple(record.names_of("endings")))
            )
        found = self.predict_examples(examples, batch_tokens=batch_tokens)
        return found[0] if single else found
