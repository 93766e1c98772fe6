"""Scores of answers are those of SQuAD's own evaluation script, on drawn answers."""

from __future__ import annotations

import random
import re
import string
from collections import Counter

import pytest

from encoder_engine.metrics.answers import answer_f1, answer_scores, exact_match

# The parts that the script treats apart: articles, punctuation, case, blanks of all kinds.
PARTS = ["the", "The", "a", "An", "an", "THE", "theory", "apple", "Apple", "U.S.", "U.S", "'s", "-"]
PARTS += [
    "don't",
    "1,000",
    "1000",
    "\u00e9t\u00e9",
    "\u201cquoted\u201d",
    "\u00a0",
    "\t",
    "a-b",
    "ab",
]


def official_words(text: str) -> list[str]:
    """Normalize as evaluate-v2.0.py does: lower, punctuation, articles, blanks."""
    lowered = text.lower()
    kept = "".join(ch for ch in lowered if ch not in set(string.punctuation))
    return re.sub(re.compile(r"\b(a|an|the)\b", re.UNICODE), " ", kept).split()


def official_scores(gold: str, predicted: str) -> tuple[float, float]:
    """Compare as evaluate-v2.0.py does: compute_exact and compute_f1."""
    right, found = official_words(gold), official_words(predicted)
    exact = float(" ".join(right) == " ".join(found))
    common = Counter(right) & Counter(found)
    same = sum(common.values())
    if len(right) == 0 or len(found) == 0:
        return exact, float(right == found)
    if same == 0:
        return exact, 0.0
    precision, recall = same / len(found), same / len(right)
    return exact, (2 * precision * recall) / (precision + recall)


def test_ten_thousand_drawn_answers_score_as_in_the_official_script() -> None:
    rng = random.Random(0)

    def draw() -> str:
        return rng.choice([" ", "  ", ""]).join(rng.choices(PARTS, k=rng.randrange(5)))

    predicted, golds, exact, f1 = {}, {}, [], []
    for number in range(10_000):
        found = draw()
        answers = [draw() for _ in range(rng.randrange(4))]
        # The script leaves out golds that normalize to nothing, then compares with an empty one.
        answers = [text for text in answers if official_words(text)]
        pairs = [official_scores(gold, found) for gold in answers or [""]]
        exact.append(max(one for one, _ in pairs))
        f1.append(max(two for _, two in pairs))
        predicted[str(number)], golds[str(number)] = found, answers
        assert exact_match(found, answers) == exact[-1]
        assert answer_f1(found, answers) == pytest.approx(f1[-1], abs=1e-12)
    scores = answer_scores(predicted, golds)
    assert 0.0 < scores.exact_match < scores.f1 < 1.0
    assert scores.exact_match == pytest.approx(sum(exact) / 10_000)
    assert scores.f1 == pytest.approx(sum(f1) / 10_000)
