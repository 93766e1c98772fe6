"""Answers questions by the rule of transformers' question-answering pipeline, which 5.3 removed.

How it works: in each window, softmaxes of the start logits and of the end logits are taken over the
context's tokens and the classification token; a span's score is the product of both. Spans of equal
text, ignoring case, are one answer whose scores are added over all windows: a score may be above 1,
and depends on how many answers are requested. Numbers are float32, computed in the order of the
pipeline of 4.57, so that ties are broken as there.

Dimensions: T tokens of a window.
"""

from __future__ import annotations

from dataclasses import fields, replace
from typing import TYPE_CHECKING, Any, NamedTuple, Self

import numpy as np

from encoder_engine.dataclass import dataclass
from encoder_engine.tasks.batching import window_items
from encoder_engine.tasks.items import Ragged
from encoder_engine.tasks.question_answering import (
    AnswerPrediction,
    QuestionAnsweringTask,
    QuestionExample,
)
from encoder_engine.tasks.questions.decoding import Answer

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import numpy.typing as npt

    from encoder_engine.tasks.items import Items
    from encoder_engine.tasks.task import Outputs, Windows
    from encoder_engine.text import Tokenizer

    Integers = npt.NDArray[np.integer]
    Floats = npt.NDArray[np.float32]

__all__ = ["PipelineAnswers"]

# The logit of a token that is in no answer.
_NEVER = np.float32(-10000.0)


class _Window(NamedTuple):
    """A window of a context: the probabilities that each token is an answer's first, and last.

    ``starts``, ``ends`` float32 [T]: these probabilities.
    ``allowed`` bool [T]: the tokens of the context and the classification tokens.
    ``words`` int64 [T]: the word of each token of the context, else -1.
    ``chars`` int32 [T, 2]: the characters of each token.
    """

    starts: Floats
    ends: Floats
    allowed: npt.NDArray[np.bool_]
    words: Integers
    chars: Integers


@dataclass(frozen=True, kw_only=True)
class PipelineAnswers(QuestionAnsweringTask):
    """Answers questions by the rule of transformers' question-answering pipeline.

    ``top_k``: the most answers to a question. ``max_tokens``: the most tokens of an answer.
    ``align_to_words``: widens answers to whole words, as the tokenizer finds them.
    ``no_answer``: ``"yes"``: that there is no answer is one of the answers.
    """

    max_tokens: int = 15
    top_k: int = 1
    align_to_words: bool = True

    @classmethod
    def of(cls, task: QuestionAnsweringTask, **options: Any) -> Self:
        """Make this task from a reader's task; ``options``: fields that are new or differ.

        ``max_tokens`` is this class's default, unless it is among the options.
        """
        own = {field.name: getattr(task, field.name) for field in fields(task)}
        return cls(**own | {"max_tokens": cls.max_tokens} | options)

    def encode(
        self, examples: Sequence[QuestionExample], tokenizer: Tokenizer, windows: Windows
    ) -> Items:
        """Tokenize each question with the windows of its context.

        Raises :class:`InputError` for a question that leaves no room for its context.
        """
        encoding = self.encode_rows(examples, tokenizer, windows)
        context, offsets = encoding.sequence_ids == 1, encoding.cu_seqlens.astype(np.int64)
        columns = {
            "allowed": context | (encoding.ids == _classification(tokenizer)),
            "words": np.where(context, encoding.word_ids, -1),
            "chars": encoding.offsets,
        }
        items = window_items(encoding)
        ragged = {name: Ragged(values, offsets) for name, values in columns.items()}
        return replace(items, columns=ragged)

    def decode(
        self, outputs: Outputs, items: Items, examples: Sequence[QuestionExample]
    ) -> list[AnswerPrediction]:
        """Answer each question from the logits of all windows of its context."""
        windows: list[list[_Window]] = [[] for _ in examples]
        tokens = items.token_offsets.tolist()
        for item, example in enumerate(items.examples.tolist()):
            allowed = items.ragged("allowed").of(item)
            part = slice(tokens[item], tokens[item + 1])
            starts, ends = (_softmax(outputs[name][part], allowed) for name in ("starts", "ends"))
            words, chars = (items.ragged(name).of(item) for name in ("words", "chars"))
            windows[example].append(_Window(starts, ends, allowed, words, chars))
        return [
            self._answer(found, example.context)
            for found, example in zip(windows, examples, strict=True)
        ]

    def _answer(self, windows: Sequence[_Window], context: str) -> AnswerPrediction:
        """Return the ``top_k`` best answers to a question over all windows of its context."""
        null = min(float(window.starts[0] * window.ends[0]) for window in windows)
        found: dict[str, Answer] = {}
        for window in windows:
            for start, stop, score in self._spans(window):
                text = context[start:stop]
                before = found.get(text.lower())
                found[text.lower()] = (
                    Answer(text, start, stop, score)
                    if before is None
                    else before._replace(score=before.score + score)
                )
        answers = [*found.values()]
        if self.no_answer == "yes":
            answers.append(Answer("", 0, 0, null))
        answers = sorted(answers, key=lambda one: -one.score)[: self.top_k]
        # A context without a token may leave no answer.
        text, start, stop, score = answers[0] if answers else Answer("", 0, 0, 0.0)
        return AnswerPrediction(text, start, stop, score, tuple(answers), null)

    def _spans(self, window: _Window) -> Iterator[tuple[int, int, float]]:
        """Yield the character range and the score of a window's best spans, best first."""
        starts, ends = window.starts.copy(), window.ends.copy()
        starts[0] = ends[0] = 0.0
        scores = np.tril(np.triu(starts[:, None] * ends[None]), self.max_tokens - 1).ravel()
        # Some spans become equal when they are widened to words.
        count = 2 * self.top_k + 10 if self.align_to_words else self.top_k
        if count == 1:
            order = np.array([scores.argmax()])
        elif len(scores) < count:
            order = np.argsort(-scores)
        else:
            order = np.argpartition(-scores, count)[:count]
            order = order[np.argsort(-scores[order])]
        for place in order.tolist():
            first, last = divmod(place, len(starts))
            if window.allowed[first] and window.allowed[last]:
                yield *self._characters(window, first, last), float(scores[place])

    def _characters(self, window: _Window, first: int, last: int) -> tuple[int, int]:
        words = window.words
        if self.align_to_words and words[first] >= 0 and words[last] >= 0:
            first = int(np.flatnonzero(words == words[first])[0])
            last = int(np.flatnonzero(words == words[last])[-1])
        return int(window.chars[first, 0]), int(window.chars[last, 1])


def _softmax(logits_T: npt.NDArray[Any], allowed_T: npt.NDArray[np.bool_]) -> Floats:
    masked_T = np.where(allowed_T, logits_T.astype(np.float32), _NEVER)
    raised_T = np.exp(masked_T - masked_T.max())
    found_T: Floats = raised_T / raised_T.sum()
    return found_T


def _classification(tokenizer: Tokenizer) -> int:
    """Return the id of the classification token, such as ``[CLS]``; -1: there is none."""
    found = tokenizer.cls_token_id
    return -1 if found is None else found
