"""Answers are those of a brute force over all windows; gold that is not there is refused."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import numpy as np
import pytest
import torch

from encoder_engine import Encoder
from encoder_engine.errors import InputError, RowError
from encoder_engine.families.config import spec_from_config
from encoder_engine.finetuning.evaluation import score_intervals
from encoder_engine.inputs.records import Record
from encoder_engine.packing import Sequences
from encoder_engine.tasks.batching import encode_windows
from encoder_engine.tasks.models.answer_model import window_cross_entropy
from encoder_engine.tasks.question_answering import (
    AnswerPrediction,
    GoldAnswer,
    QuestionAnsweringTask,
    QuestionExample,
)
from encoder_engine.tasks.questions.decoding import (
    QuestionWindow,
    best_null_threshold,
    n_best,
    null_score,
)
from encoder_engine.tasks.task import Windows

if TYPE_CHECKING:
    from pathlib import Path

    from encoder_engine import Tokenizer

CONTEXT = "abcdefghijklmnopqrstuvwxyz"


def test_a_seed_draws_the_same_head_as_any_tasks() -> None:
    # Construction drew numbers first, and the head of seed 0 was not that of other tasks.
    config = {
        "model_type": "bert",
        "vocab_size": 8,
        "hidden_size": 16,
        "num_hidden_layers": 1,
        "num_attention_heads": 2,
        "intermediate_size": 16,
        "max_position_embeddings": 8,
        "type_vocab_size": 2,
    }
    encoder = Encoder(spec_from_config(config), config=config)
    torch.manual_seed(3)
    head = dict(QuestionAnsweringTask().make_model(encoder).named_parameters())
    drawn = torch.randn(2, 16, generator=torch.Generator().manual_seed(3)) * 0.02
    assert torch.equal(head["model.head.output.weight"], drawn)
    assert not head["model.head.output.bias"].any()


def draw_windows(seed: int) -> list[QuestionWindow]:
    rng = np.random.default_rng(seed)
    found = []
    for start in (0, 6, 12):
        chars = np.stack([np.arange(start, start + 12), np.arange(start + 1, start + 13)], axis=1)
        starts, ends = rng.normal(size=(2, 16))
        found.append(QuestionWindow(starts, ends, 3, 15, chars))
    return found


@pytest.mark.parametrize("seed", range(20))
def test_the_best_answers_are_those_of_a_brute_force(seed: int) -> None:
    windows, most = draw_windows(seed), 4
    scores: dict[tuple[int, int], float] = {}
    for window in windows:
        for one in range(12):
            for two in range(one, min(one + most, 12)):
                place = int(window.chars[one, 0]), int(window.chars[two, 1])
                score = window.starts[3 + one] + window.ends[3 + two]
                scores[place] = max(scores.get(place, -np.inf), score)
    ranked = sorted(scores.items(), key=lambda item: -item[1])[:12]
    found = n_best(windows, CONTEXT, num_best=12, max_tokens=most)
    assert [(one.start, one.stop) for one in found] == [place for place, _ in ranked]
    assert [one.score for one in found] == pytest.approx([score for _, score in ranked])
    assert all(one.text == CONTEXT[one.start : one.stop] for one in found)
    assert null_score(windows) == min(w.starts[0] + w.ends[0] for w in windows)


def test_the_threshold_of_no_answer_is_that_of_a_sweep() -> None:
    rng = np.random.default_rng(1)
    differences = rng.integers(-3, 4, size=40).astype(np.float64)
    answered, unanswered = rng.random(40), (rng.random(40) < 0.5).astype(np.float64)

    def mean(threshold: float) -> float:
        return float(np.where(differences > threshold, unanswered, answered).mean())

    found = best_null_threshold(differences, answered, unanswered, 0.0)
    assert mean(found) == pytest.approx(max(mean(t) for t in np.arange(-4.5, 4.5)))


def test_the_loss_is_a_softmax_within_each_window() -> None:
    logits = torch.randn(9, dtype=torch.float64, requires_grad=True)
    places = torch.tensor([1, 3])
    found = window_cross_entropy(logits, Sequences.from_lengths([4, 5]), places)
    expected = -logits[:4].log_softmax(0)[1] - logits[4:].log_softmax(0)[3]
    torch.testing.assert_close(found, expected)
    ours, theirs = (torch.autograd.grad(x, logits)[0] for x in (found, expected))
    torch.testing.assert_close(ours, theirs)


def question(start: int = 2, text: str = "ab") -> Record:
    answers = {"text": [text], "answer_start": [start]}
    return Record({"id": "q7", "question": "a b", "context": "b ab a", "answers": answers})


def test_targets_are_the_answers_tokens_and_long_questions_are_refused(
    tokenizer: Tokenizer,
) -> None:
    task = QuestionAnsweringTask()
    example = task.read(question())
    items = task.encode([example], tokenizer, Windows(max_length=32))
    # [CLS] a b [SEP] b a ##b a [SEP]
    assert items.column("target").tolist() == [[5, 6]]
    starts, ends = np.zeros((2, 9))
    starts[5] = ends[6] = 1.0
    [prediction] = task.decode({"starts": starts, "ends": ends}, items, [example])
    assert (prediction.text, prediction.start, prediction.stop) == ("ab", 2, 4)
    assert task.score([example], [prediction]) == {"exact_match": 100.0, "f1": 100.0}
    with pytest.raises(InputError, match="question 'q7' has 2 tokens, which leaves 1 of 6"):
        task.encode([example], tokenizer, Windows(max_length=6, stride=1))


def test_an_answer_that_is_not_there_is_named() -> None:
    with pytest.raises(RowError, match="question 'q7': the answer 'ab' is not at answer_start 1"):
        QuestionAnsweringTask().read(question(1))
    with pytest.raises(InputError, match="no training question has an answer"):
        QuestionAnsweringTask().fit([])


def test_the_paragraphs_of_an_article_are_one_group(tmp_path: Path) -> None:
    # Those of article 0, whose number was taken for a missing one, were groups of their own.
    path = tmp_path / "squad.json"
    articles = [
        {
            "paragraphs": [
                {"context": f"a b {n}", "qas": [{"id": f"{article}.{n}", "question": "q"}]}
                for n in range(2)
            ]
        }
        for article in range(2)
    ]
    path.write_text(json.dumps({"data": articles}))
    task = QuestionAnsweringTask()
    records = task.records(path)
    assert records is not None
    assert task.groups([task.read(record) for record in records]).tolist() == [0, 0, 1, 1]


def test_windows_without_overlap_hold_the_whole_text(tokenizer: Tokenizer) -> None:
    encoding = encode_windows(tokenizer, Windows(max_length=6, stride=0), ["a b " * 10, "a"])
    assert encoding.overflow_to_sample.tolist() == [0] * 5 + [1]
    assert not encoding.num_truncated
    cut = encode_windows(tokenizer, Windows(max_length=6, truncate=True), ["a b " * 10])
    assert (len(cut), cut.num_truncated) == (1, 1)


def test_samples_without_a_kind_of_question_leave_its_interval() -> None:
    # Half of the samples hold no unanswerable question: the interval ended with KeyError.
    examples = [
        QuestionExample("one", "q", "x y", (GoldAnswer("x", 0),), "first article"),
        QuestionExample("two", "q", "x y", (GoldAnswer("y", 2),), "second article"),
        QuestionExample("three", "q", "x y", (), "third article"),
    ]
    predictions = [AnswerPrediction("x", 0, 1, 1.0, (), 0.0) for _ in examples]
    task = QuestionAnsweringTask(no_answer="yes")
    found = score_intervals(task, examples, predictions, samples=100, level=0.95)
    assert found.keys() == set(task.score_names(examples))
    assert found["unanswerable_f1"][:3] == (0.0, 0.0, 0.0)
    assert found["answerable_f1"][:3] == (50.0, 0.0, 100.0)
