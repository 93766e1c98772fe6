"""Predictions come back in the forms of CoNLL, SQuAD and GLUE."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from encoder_engine.cli import main
from encoder_engine.errors import OutputError
from encoder_engine.prediction.output_forms import output_form
from encoder_engine.tasks.question_answering import (
    AnswerPrediction,
    QuestionAnsweringTask,
    QuestionExample,
)
from encoder_engine.tasks.regression import RegressionTask, ScorePrediction
from encoder_engine.tasks.sequence_classification import (
    ClassPrediction,
    SequenceClassificationTask,
)
from encoder_engine.tasks.sequence_task import TextExample
from encoder_engine.tasks.span_classification import (
    SpanClassificationTask,
    SpanExample,
    SpanPrediction,
)
from encoder_engine.tasks.token_classification import (
    TaggedExample,
    TaggedPrediction,
    TokenClassificationTask,
)
from encoder_engine.tasks.words.span_selection import PredictedSpan

if TYPE_CHECKING:
    from pathlib import Path

    from encoder_engine.tasks.task import Task


def written(name: str, task: Task[Any, Any], *rows: tuple[Any, Any]) -> str:
    form = output_form(name, task)
    text = form.begin()
    for example, prediction in rows:
        text += form.write([example], [prediction])
    return text + form.end()


def test_tags_and_flat_spans_are_conll() -> None:
    words = ("New", "York", "is", "big")
    tagged = (TaggedExample(words), TaggedPrediction(("B-L", "I-L", "O", "O"), np.ones(4)))
    expected = "New\tB-L\nYork\tI-L\nis\tO\nbig\tO\n\n"
    assert written("p.conll", TokenClassificationTask(), tagged) == expected
    spans = SpanPrediction((PredictedSpan(0, 2, "L", 0.9),), ())
    task = SpanClassificationTask()
    assert written("p.conll", task, (SpanExample(words), spans)) == expected
    with pytest.raises(OutputError, match=r"span-classification can be written as \.jsonl"):
        output_form("p.conll", replace(task, nested=True))
    bad = (TaggedExample(("a\tb",)), TaggedPrediction(("O",), np.ones(1)))
    with pytest.raises(OutputError, match="sentence 0 has the word"):
        written("p.conll", TokenClassificationTask(), bad)


def test_answers_are_texts_by_id() -> None:
    answers = {"one": 'a "b"', "two": "", "three": "half a pair: \ud800"}
    rows = [
        (
            QuestionExample(id=name, question="q", context="c"),
            AnswerPrediction(text, 0, 1, 1, (), 0),
        )
        for name, text in answers.items()
    ]
    text = written("p.json", QuestionAnsweringTask(), *rows)
    assert json.loads(text.encode()) == answers
    assert json.loads(written("p.json", QuestionAnsweringTask())) == {}
    # The rows of two files without ids have the same numbers: the former answer was lost.
    with pytest.raises(OutputError, match="question 3 has the id 'one' of one before"):
        written("p.json", QuestionAnsweringTask(), *rows, rows[0])


def test_labels_and_scores_are_glue() -> None:
    task = SequenceClassificationTask(labels=("no", "yes"))
    shares = np.array([0.25, 0.75])
    example: TextExample[Any] = TextExample("a")
    row = (example, ClassPrediction(("yes",), shares, shares))
    assert written("p.tsv", task, row, row) == "index\tprediction\n0\tyes\n1\tyes\n"
    score = (example, ScorePrediction(2.0))
    assert written("p.tsv", RegressionTask(), score) == "index\tprediction\n0\t2.000\n"
    assert json.loads(written("p.jsonl", task, row))["prediction"] == "yes"
    with pytest.raises(OutputError, match="can be written as"):
        output_form("p.tsv", replace(task, multi_label=True))


def test_predictions_replace_no_input(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rows = tmp_path / "rows.jsonl"
    rows.write_text('{"text": "a"}\n')
    command = [
        "predict",
        "--model",
        str(tmp_path / "run"),
        str(rows),
        "-o",
        str(rows),
        "--overwrite",
    ]
    assert main(command) == 1
    assert "rows.jsonl is one of the inputs; name another output" in capsys.readouterr().err
