"""Answers questions from their contexts by a fine-tuned model."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, Literal, get_args

from encoder_engine.errors import InputError
from encoder_engine.inputs.records import Record
from encoder_engine.kinds.pairs import is_pair
from encoder_engine.prediction.pipeline_answers import PipelineAnswers
from encoder_engine.prediction.predictor import BATCH_TOKENS, Predictor
from encoder_engine.strings import from_arrow
from encoder_engine.tasks.question_answering import QuestionAnsweringTask
from encoder_engine.text.arguments import check_integer
from encoder_engine.vectors.columns import PredictedRows

if TYPE_CHECKING:
    from collections.abc import Iterable

    Rows = tuple[str, str] | Iterable[tuple[str, str]]

__all__ = ["Reader", "Rule"]

Rule = Literal["engine", "pipeline"]


class Reader(Predictor):
    """Answers questions by spans of their contexts, which may be of any length."""

    tasks = ("question-answering",)

    def predict(
        self,
        questions: Rows,
        *,
        top_k: int | None = None,
        max_tokens: int | None = None,
        allow_none: bool | None = None,
        rule: Rule = "engine",
        batch_tokens: int = BATCH_TOKENS,
    ) -> Any:
        """Return the answer to each pair of a question and its context, or to a single pair.

        top_k: the most answers in ``best``; None: all answers that the softmax is taken over; with
            ``rule="pipeline"`` one.
        max_tokens: the most tokens of an answer; None: as in training, or 15 by the pipeline's
            rule.
        allow_none: whether a question may have no answer; None: as in training; False for a
            published model.
        rule: ``"engine"`` compares sums of logits over all windows, each span by itself.
            ``"pipeline"`` is that of transformers' question-answering pipeline: products of
            probabilities within a window, added over answers of the same text, so that a
            ``probability`` may be above 1; answers are whole words, and ``null`` is a product too.

        An :class:`~encoder_engine.tasks.question_answering.AnswerPrediction` has the text, its
        characters in the context, its probability and the next best answers. Raises
        :class:`InputError` for a row that is not a pair or is blank, and for a question that leaves
        no room for its context.
        """
        task = self._task(top_k, max_tokens, allow_none, rule)
        single = is_pair(questions)
        rows = enumerate([questions] if single else from_arrow(questions))
        examples = [self.example(row, pair) for row, pair in rows]
        found = self.predict_examples(examples, batch_tokens=batch_tokens, task=task)
        if top_k is not None:
            found = [one._replace(best=one.best[:top_k]) for one in found]
        return found[0] if single else found

    def example(self, row: int, content: Any) -> Any:
        """Make an unlabelled example of the task from a pair of a question and its context."""
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
        """Return predictions as columns ``answer``, its ``start`` and ``stop``, and ``score``."""
        return PredictedRows(
            columns={
                "answer": [one.text for one in predictions],
                "start": [one.start for one in predictions],
                "stop": [one.stop for one in predictions],
                "score": [one.probability for one in predictions],
            },
            types={"answer": "string", "start": "int64", "stop": "int64", "score": "double"},
        )

    def _task(
        self, top_k: int | None, max_tokens: int | None, allow_none: bool | None, rule: Rule
    ) -> QuestionAnsweringTask:
        """Return the model's task, with these settings of a call; None: as in training."""
        task = self.task
        assert isinstance(task, QuestionAnsweringTask)
        changes: dict[str, Any] = {}
        if max_tokens is not None:
            changes["max_tokens"] = check_integer(max_tokens, "max_tokens", least=1)
        if allow_none is not None:
            changes["no_answer"] = "yes" if allow_none else "no"
        count = 1 if top_k is None else check_integer(top_k, "top_k", least=1)
        if rule == "pipeline":
            return PipelineAnswers.of(task, top_k=count, **changes)
        if rule != "engine":
            raise InputError(f"rule must be one of {', '.join(get_args(Rule))}, got {rule!r}")
        return replace(task, num_best=max(task.num_best, count), **changes)
