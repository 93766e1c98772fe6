"""Extractive question answering: the answer is a span of the context, or there is none.

Long contexts are read in windows. The target of a window that does not hold the whole answer is its
first token, which stands for no answer. Answers are slices of the context's characters.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, ClassVar, Literal, NamedTuple, Self

import numpy as np

from encoder_engine.dataclass import dataclass
from encoder_engine.engine.outputs import Logits
from encoder_engine.errors import ConfigError, InputError
from encoder_engine.inputs.conll import plain_suffix
from encoder_engine.inputs.squad import read_squad
from encoder_engine.metrics.answers import answer_f1, answer_scores, exact_match
from encoder_engine.tasks import engines, models
from encoder_engine.tasks.batching import encode_windows, window_items
from encoder_engine.tasks.items import Ragged, TaskBatch, feature_targets
from encoder_engine.tasks.labels import softmax, unlabelled
from encoder_engine.tasks.questions.decoding import (
    Answer,
    QuestionWindow,
    best_null_threshold,
    n_best,
    null_score,
)
from encoder_engine.tasks.task import Task

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Iterator, Sequence

    import numpy.typing as npt

    from encoder_engine.engine.compiled import CompiledEngine
    from encoder_engine.inputs.records import Record
    from encoder_engine.models import Encoder
    from encoder_engine.tasks.engines.compiled import CompiledModel
    from encoder_engine.tasks.engines.source import CompiledSource
    from encoder_engine.tasks.items import Items, SavedModel
    from encoder_engine.tasks.models.task_model import TaskModel
    from encoder_engine.tasks.task import Outputs, Windows
    from encoder_engine.text import Encoding, Tokenizer

    Integers = npt.NDArray[np.int64]

__all__ = ["AnswerPrediction", "GoldAnswer", "QuestionAnsweringTask", "QuestionExample"]

# The kinds of questions where some have no answer, and whether a question of a kind has one.
_KINDS = (("answerable", True), ("unanswerable", False))
# transformers' names of the logits of first and last tokens.
_LABELS = ("LABEL_0", "LABEL_1")


class GoldAnswer(NamedTuple):
    """A gold answer's text, and the index of its first character in the context."""

    text: str
    start: int


@dataclass(frozen=True, slots=True)
class QuestionExample:
    """A question, its context and gold answers: () if it is unanswerable, None if unlabelled.

    ``group``: the article of the context; the bootstrap resamples whole groups.
    """

    id: str
    question: str
    context: str
    answers: tuple[GoldAnswer, ...] | None = None
    group: str = ""


class AnswerPrediction(NamedTuple):
    """The answer of a question.

    ``text``: empty where there is no answer; ``start``, ``stop``: its characters in the context.
    ``probability``: of the answer, by softmax over the spans in ``best`` and, if questions may be
    unanswerable, the score of no answer.
    ``best``: the best spans, highest score first. ``null``: the score of no answer.
    """

    text: str
    start: int
    stop: int
    probability: float
    best: tuple[Answer, ...]
    null: float


@dataclass(frozen=True, kw_only=True)
class QuestionAnsweringTask(Task[QuestionExample, AnswerPrediction]):
    """Answers questions by spans of their contexts.

    ``id``, ``question``, ``context``, ``answers``: the columns; answers are a dict of two lists,
    ``text`` and ``answer_start``, as in Hugging Face's SQuAD data set. A .json file is read as
    SQuAD's own format.
    ``no_answer``: whether a question may have no answer; ``"auto"``: if a training question has
    none (SQuAD 2.0).
    ``num_best``: the number of best starts, and of best ends, that are paired in a window.
    ``max_tokens``: the most tokens of an answer.
    ``metric``: the score that selects the best checkpoint; None: f1.

    Fitted in training: ``no_answer``; and on dev questions ``null_threshold``: a question has no
    answer where the null score exceeds the best span's score by more than this.
    """

    name: ClassVar[str] = "question-answering"

    id: str = "id"
    question: str = "question"
    context: str = "context"
    answers: str = "answers"
    no_answer: Literal["auto", "yes", "no"] = "auto"
    num_best: int = 20
    max_tokens: int = 30
    metric: str | None = None
    null_threshold: float = 0.0

    def __post_init__(self) -> None:
        if self.num_best < 1 or self.max_tokens < 1:
            raise ConfigError(
                f"task.num_best is {self.num_best} and task.max_tokens {self.max_tokens}; expected "
                "at least 1"
            )

    @property
    def main_score(self) -> str:
        """The name of the score that selects the best checkpoint."""
        return self.metric or "f1"

    def records(self, path: str | os.PathLike[str]) -> Iterator[Record] | None:
        """Return the questions of a .json file in SQuAD's format; None for other files."""
        return read_squad(path) if plain_suffix(path) == ".json" else None

    def read(self, record: Record) -> QuestionExample:
        """Make an example from a row; a row without the column of answers is unlabelled."""
        name = record.name_of(self.id) if record.has(self.id) else str(record.row)
        question, context = record.text(self.question), record.text(self.context)
        if not question.strip() or not context.strip():
            record.refuse(f"question {name!r}: question or context is blank; drop the row")
        answers = self._read_answers(record, name, context) if record.has(self.answers) else None
        # The number of the first article is 0.
        groups = (record.values.get("title"), record.values.get("article"), context)
        group = next(one for one in groups if one not in (None, ""))
        return QuestionExample(name, question, context, answers, str(group))

    def _read_answers(self, record: Record, name: str, context: str) -> tuple[GoldAnswer, ...]:
        value = record.get(self.answers)
        lists: list[list[Any]] = []
        if isinstance(value, dict) and {"text", "answer_start"} <= value.keys():
            both = (value["text"], value["answer_start"])
            lists = [list(x) for x in both if hasattr(x, "__len__") and not isinstance(x, str)]
        if len(lists) != 2:
            record.refuse(
                f"question {name!r}: {self.answers} must have the lists text and answer_start, got "
                f"{value!r:.60}"
            )
        texts, starts = lists
        if len(texts) != len(starts):
            record.refuse(f"question {name!r}: {len(texts)} texts, {len(starts)} answer_start")
        found = []
        for text, start in zip(texts, starts, strict=True):
            there = isinstance(start, int) and isinstance(text, str) and start >= 0
            if not there or not text or context[start : start + len(text)] != text:
                came = repr(context[start : start + len(text)]) if there else repr(start)
                record.refuse(
                    f"question {name!r}: the answer {text!r:.60} is not at answer_start {start!r} "
                    f"of its context, where {came:.60} is; count characters (not bytes) from 0"
                )
            found.append(GoldAnswer(text, start))
        return tuple(found)

    def fit(self, examples: Sequence[QuestionExample]) -> Self:
        """Return the task with ``no_answer`` set: whether questions may be unanswerable.

        Raises :class:`InputError` if no question has an answer.
        """
        if not any(example.answers for example in examples):
            raise InputError("no training question has an answer; check the column of answers")
        if self.no_answer != "auto":
            return self
        unanswerable = any(example.answers == () for example in examples)
        return replace(self, no_answer="yes" if unanswerable else "no")

    def unlabelled(self, example: QuestionExample) -> str | None:
        """Return why an example without a list of answers cannot be learned; None: it has one."""
        return unlabelled("answers", self.answers) if example.answers is None else None

    def key(self, example: QuestionExample) -> object:
        """Return question and context, by which an example is recognised as a duplicate."""
        return example.question, example.context

    def gold_key(self, example: QuestionExample) -> object:
        """Return the gold answers, in which duplicate examples must not differ."""
        return example.answers

    def encode_rows(
        self, examples: Sequence[QuestionExample], tokenizer: Tokenizer, windows: Windows
    ) -> Encoding:
        """Tokenize questions with their contexts; return a row of tokens per window, with offsets.

        Raises :class:`InputError` for a question that leaves no room for its context.
        """
        questions = [example.question for example in examples]
        self._check_room(examples, questions, tokenizer, windows)
        return encode_windows(
            tokenizer,
            windows,
            questions,
            [example.context for example in examples],
            truncation="only_second",
            return_offsets=True,
        )

    def encode(
        self, examples: Sequence[QuestionExample], tokenizer: Tokenizer, windows: Windows
    ) -> Items:
        """Tokenize questions with the windows of their contexts; an item is a window.

        Raises :class:`InputError` for a question that leaves no room for its context.
        """
        encoding = self.encode_rows(examples, tokenizer, windows)
        offsets = encoding.cu_seqlens.astype(np.int64)
        context = encoding.sequence_ids == 1
        owners = np.repeat(np.arange(len(encoding)), np.diff(offsets))
        counts = np.bincount(owners[context], minlength=len(encoding))
        ends = np.r_[0, np.cumsum(counts)]
        rows = np.flatnonzero(context)
        # The context is contiguous; a window without any has first == stop == 0.
        firsts = np.zeros(len(encoding), np.int64)
        there = counts > 0
        firsts[there] = rows[ends[:-1][there]] - offsets[:-1][there]
        chars = encoding.offsets[rows].astype(np.int64)
        items = window_items(encoding)
        columns: dict[str, Any] = {
            "context_first": firsts,
            "context_stop": firsts + counts,
            "chars": Ragged(chars, ends),
        }
        if all(example.answers is not None for example in examples):
            targets = [
                _target(examples[example], int(first), chars[start:stop])
                for example, first, start, stop in zip(
                    items.examples, firsts, ends[:-1], ends[1:], strict=True
                )
            ]
            columns["target"] = np.array(targets, np.int64).reshape(-1, 2)
        return replace(items, columns=columns)

    @staticmethod
    def _check_room(
        examples: Sequence[QuestionExample],
        questions: list[str],
        tokenizer: Tokenizer,
        windows: Windows,
    ) -> None:
        special = sum(len(piece.ids) for piece in tokenizer.spec.pair if piece.kind == "special")
        lengths = tokenizer.encode_batch(questions, add_special_tokens=False).lengths
        shared = 0 if windows.truncate else windows.overlap
        room = windows.max_length - special - lengths
        short = np.flatnonzero(room <= shared)
        if len(short):
            row = int(short[0])
            raise InputError(
                f"question {examples[row].id!r} has {lengths[row]} tokens, which leaves "
                f"{max(int(room[row]), 0)} of {windows.max_length} for its context, not more than "
                f"the stride of {shared}; shorten it, raise max_length, or lower the stride",
                row=row,
            )

    def batch(self, items: Items) -> TaskBatch:
        """Make the model's input from a batch of items, which are windows."""
        targets = feature_targets(items)
        if "target" in items.columns:
            targets["starts"], targets["ends"] = items.column("target").T
        return TaskBatch(items.rows, targets)

    def feature_offsets(self, items: Items) -> Integers:
        """Return where each item's cached encoder outputs begin, [N + 1]: one row per token."""
        return items.token_offsets

    def make_model(self, encoder: Encoder) -> TaskModel:
        """Make the task's model from an encoder; its head is random."""
        return models.AnswerModel.new(encoder, _LABELS)

    def load_model(self, saved: SavedModel) -> TaskModel:
        """Load the task's model, an encoder with its head, as a PyTorch module."""
        return models.AnswerModel.load(saved)

    def load_compiled(self, source: CompiledSource) -> CompiledModel:
        """Load the task's model for the compiled engine (C++, on a CPU)."""
        return engines.CompiledModel(source.load_head("question-answering", _LABELS), _ends)

    def decode(
        self, outputs: Outputs, items: Items, examples: Sequence[QuestionExample]
    ) -> list[AnswerPrediction]:
        """Answer each question from the logits of all windows of its context."""
        windows: list[list[QuestionWindow]] = [[] for _ in examples]
        tokens = items.token_offsets.tolist()
        chars = items.ragged("chars")
        firsts, stops = items.column("context_first"), items.column("context_stop")
        for item, example in enumerate(items.examples.tolist()):
            part = slice(tokens[item], tokens[item + 1])
            windows[example].append(
                QuestionWindow(
                    outputs["starts"][part],
                    outputs["ends"][part],
                    int(firsts[item]),
                    int(stops[item]),
                    chars.of(item),
                )
            )
        return [
            self._predict(
                n_best(found, example.context, num_best=self.num_best, max_tokens=self.max_tokens),
                null_score(found),
            )
            for found, example in zip(windows, examples, strict=True)
        ]

    def _predict(self, best: Sequence[Answer], null: float) -> AnswerPrediction:
        scores = np.array([answer.score for answer in best] + [null])
        if self.no_answer != "yes" and best:
            scores[-1] = -np.inf
        probabilities = softmax(scores)
        none = not best or (self.no_answer == "yes" and null - best[0].score > self.null_threshold)
        text, start, stop, _ = Answer("", 0, 0, null) if none else best[0]
        return AnswerPrediction(
            text, start, stop, float(probabilities[-1 if none else 0]), tuple(best), null
        )

    def tuned(
        self, examples: Sequence[QuestionExample], predictions: Sequence[AnswerPrediction]
    ) -> Self:
        """Return the task with the null threshold that gives the highest F1 on these dev rows."""
        if self.no_answer != "yes":
            return self
        rows = [
            (one.null - one.best[0].score, answer_f1(one.best[0].text, gold), answer_f1("", gold))
            for one, gold in zip(predictions, _gold(examples), strict=True)
            if one.best
        ]
        table = np.array(rows, np.float64).reshape(-1, 3)
        found = best_null_threshold(table[:, 0], table[:, 1], table[:, 2], self.null_threshold)
        return replace(self, null_threshold=found)

    def revised(self, predictions: Sequence[AnswerPrediction]) -> list[AnswerPrediction]:
        """Return the predictions with this task's null threshold applied."""
        return [self._predict(one.best, one.null) for one in predictions]

    def score_names(self, examples: Sequence[QuestionExample]) -> tuple[str, ...]:
        """Return the names of exact match and F1: of all, answerable and unanswerable questions."""
        scores = ("exact_match", "f1")
        there = {bool(example.answers) for example in examples} if self.no_answer == "yes" else ()
        kinds = [kind for kind, wanted in _KINDS if wanted in there]
        return *scores, *(f"{kind}_{score}" for kind in kinds for score in scores)

    def score(
        self, examples: Sequence[QuestionExample], predictions: Sequence[AnswerPrediction]
    ) -> dict[str, float]:
        """Return exact match and F1 in percent, of all questions and by answerability."""
        gold = _gold(examples)
        texts = [prediction.text for prediction in predictions]
        whole = answer_scores(dict(enumerate(texts)), dict(enumerate(gold)))  # type: ignore[arg-type]
        scores = {"exact_match": 100.0 * whole.exact_match, "f1": 100.0 * whole.f1}
        if self.no_answer != "yes":
            return scores
        for name, wanted in _KINDS:
            some = [pair for pair in zip(texts, gold, strict=True) if bool(pair[1]) == wanted]
            for score, measure in (("exact_match", exact_match), ("f1", answer_f1)):
                if some:
                    scores[f"{name}_{score}"] = 100.0 * float(np.mean([measure(*x) for x in some]))
        return scores

    def groups(self, examples: Sequence[QuestionExample]) -> Integers:
        """Return each question's group, drawn whole by the bootstrap: by article or by context."""
        numbers: dict[str, int] = {}
        return np.array([numbers.setdefault(one.group, len(numbers)) for one in examples], np.int64)

    def resampling(
        self, examples: Sequence[QuestionExample], predictions: Sequence[AnswerPrediction]
    ) -> Callable[[Integers], dict[str, float]]:
        """Return a function from the indices of a bootstrap sample of questions to its scores.

        A score of answerable or unanswerable questions is NaN if none of them is drawn.
        """
        score, names = super().resampling(examples, predictions), self.score_names(examples)

        def score_all(rows: Integers) -> dict[str, float]:
            found = score(rows)
            return {name: found.get(name, np.nan) for name in names}

        return score_all

    def row_scores(
        self, examples: Sequence[QuestionExample], predictions: Sequence[AnswerPrediction]
    ) -> npt.NDArray[np.float64]:
        """Return the F1 of the answer to each question, from 0 to 1."""
        pairs = zip(predictions, _gold(examples), strict=True)
        return np.array([answer_f1(prediction.text, gold) for prediction, gold in pairs])

    def degenerate(self, predictions: Sequence[AnswerPrediction]) -> str | None:
        """Return a warning's text if none of several questions is answered; else None."""
        if len(predictions) < 2 or any(prediction.text for prediction in predictions):
            return None
        return "no question is answered: nothing was learned"

    def details(
        self, examples: Sequence[QuestionExample], predictions: Sequence[AnswerPrediction]
    ) -> dict[str, Any]:
        """Return the null threshold, for ``report.json``; {} if every question has an answer."""
        del examples, predictions
        return {"null_threshold": self.null_threshold} if self.no_answer == "yes" else {}

    def to_record(self, example: QuestionExample, prediction: AnswerPrediction) -> dict[str, Any]:
        """Return an example with its prediction as the JSON object that ``predict`` writes."""
        return {
            self.id: example.id,
            self.question: example.question,
            "prediction": prediction.text,
            "start": prediction.start,
            "stop": prediction.stop,
            "probability": prediction.probability,
        }


def _ends(engine: CompiledEngine, batch: TaskBatch) -> dict[str, npt.NDArray[Any]]:
    starts, ends = engine.run(batch.rows, Logits())[0].T
    return {"starts": starts, "ends": ends}


def _gold(examples: Sequence[QuestionExample]) -> list[list[str]]:
    return [[answer.text for answer in example.answers or ()] for example in examples]


def _target(example: QuestionExample, first: int, chars: Integers) -> tuple[int, int]:
    """Return the first gold answer's first and last token; 0, 0 if not wholly in the window.

    ``first``: the index of the context's first token. ``chars``: the context tokens' characters.
    """
    if not example.answers or not len(chars):
        return 0, 0
    answer = example.answers[0]
    stop = answer.start + len(answer.text)
    if chars[0, 0] > answer.start or chars[-1, 1] < stop:
        return 0, 0
    start_token = int(np.searchsorted(chars[:, 0], answer.start, side="right")) - 1
    end_token = int(np.searchsorted(chars[:, 1], stop, side="left"))
    return first + start_token, first + max(end_token, start_token)
