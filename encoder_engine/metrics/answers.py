"""Exact match and F1 of extracted answers, as SQuAD's evaluation defines them.

Rajpurkar et al. 2016 and 2018: texts are compared in lower case, without ASCII punctuation and
articles, with single blanks; the best score over the gold answers counts. An empty answer equals
only an empty gold answer.
"""

from __future__ import annotations

import re
import string
from collections import Counter
from typing import TYPE_CHECKING, NamedTuple

from encoder_engine.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

__all__ = ["AnswerScores", "answer_f1", "answer_scores", "exact_match", "normalize_answer"]

_PUNCTUATION = str.maketrans("", "", string.punctuation)
_ARTICLES = re.compile(r"\b(a|an|the)\b")


class AnswerScores(NamedTuple):
    """The mean exact match and F1 over questions, from 0 to 1."""

    exact_match: float
    f1: float
    num_questions: int


def normalize_answer(text: str) -> str:
    """Normalize a text for comparison: lower case, without punctuation and articles."""
    return " ".join(_ARTICLES.sub(" ", text.lower().translate(_PUNCTUATION)).split())


def exact_match(predicted: str, answers: Sequence[str]) -> float:
    """Return 1 if the normalized prediction equals a normalized gold answer, else 0.

    answers: the gold texts; an empty list, or an empty text, if the question has no answer.
    Raises :class:`InputError` for one text instead of a list.
    """
    found = normalize_answer(predicted)
    return float(any(found == normalize_answer(answer) for answer in _listed(answers)))


def answer_f1(predicted: str, answers: Sequence[str]) -> float:
    """Return the greatest F1, in words, of the prediction with a gold answer; 0 to 1.

    answers: see :func:`exact_match`.
    """
    return max(_overlap(predicted, answer) for answer in _listed(answers))


def answer_scores(
    predicted: Mapping[str, str], answers: Mapping[str, Sequence[str]]
) -> AnswerScores:
    """Score predicted answers against gold answers, both by the question's id.

    Raises :class:`InputError` if a question has no prediction, instead of counting it as wrong, and
    if there is no question.
    """
    if not answers:
        raise InputError("there is no question to score")
    missing = [name for name in answers if name not in predicted]
    if missing:
        raise InputError(
            f"{len(missing)} of {len(answers)} questions have no prediction, the first is "
            f"{missing[0]!r}; give an empty text where there is no answer"
        )
    matches = sum(exact_match(predicted[name], gold) for name, gold in answers.items())
    overlaps = sum(answer_f1(predicted[name], gold) for name, gold in answers.items())
    return AnswerScores(matches / len(answers), overlaps / len(answers), len(answers))


def _listed(answers: Sequence[str]) -> Sequence[str]:
    if isinstance(answers, str):
        raise InputError(f"answers is one text, {answers!r:.60}; give a list of the gold texts")
    return answers or [""]


def _overlap(predicted: str, answer: str) -> float:
    found, gold = normalize_answer(predicted).split(), normalize_answer(answer).split()
    if not found or not gold:
        return float(found == gold)
    shared = (Counter(found) & Counter(gold)).total()
    return 2 * shared / (len(found) + len(gold))
