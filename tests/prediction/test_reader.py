"""Answers by both rules: transformers' pipeline of 4.57, whose answers are stored, and our own."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

import encoder_engine as ee
from encoder_engine.errors import InputError
from encoder_engine.ops.cpu import native_instruction_set
from tests import ROOT
from tests.finetuning.task_rows import write_task_model
from tests.prediction.question_models import KINDS, QUESTIONS, SETTINGS, write_reader

if TYPE_CHECKING:
    from pathlib import Path

    from encoder_engine.tasks.question_answering import AnswerPrediction

pytestmark = [
    pytest.mark.skipif(native_instruction_set() is None, reason="the extension is not built"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning:transformers.*"),
]
# Of the scores of both libraries in float32; measured: 3e-7.
CLOSE = 1e-5
NAMES = {
    "top_k": "top_k",
    "max_answer_len": "max_tokens",
    "handle_impossible_answer": "allow_none",
}


def golden(kind: str) -> list[list[Any]]:
    """Return the stored answers of a reader: of each setting, to each question."""
    path = ROOT / "tests" / "golden" / "answers_golden.json"
    found: list[list[Any]] = json.loads(path.read_text())["answers"][kind]
    return found


def assert_same(ours: AnswerPrediction, theirs: Any) -> None:
    """Compare the answers in ``best`` with what transformers' pipeline returned."""
    rows = theirs if isinstance(theirs, list) else [theirs]
    assert [(one.text, one.start, one.stop) for one in ours.best] == [
        (row["answer"], row["start"], row["end"]) for row in rows
    ]
    for one, row in zip(ours.best, rows, strict=True):
        assert abs(one.score - row["score"]) <= CLOSE


@pytest.mark.slow
@pytest.mark.parametrize("engine", ["compiled", "torch"])
@pytest.mark.parametrize("kind", KINDS)
def test_answers_are_those_of_transformers(kind: str, engine: Any, tmp_path: Path) -> None:
    reader = ee.Reader.from_pretrained(write_reader(tmp_path, kind), "cpu", engine=engine)
    compared = 0
    for setting, expected in zip(SETTINGS, golden(kind), strict=True):
        if not setting.keys() <= NAMES.keys():
            continue
        options: dict[str, Any] = {NAMES[name]: value for name, value in setting.items()}
        found = reader.predict(QUESTIONS, rule="pipeline", **options)
        for one, row in zip(found, expected, strict=True):
            assert_same(one, row)
            assert (one.text, one.start, one.stop, one.probability) == one.best[0]
            compared += 1
    assert compared == 3 * len(QUESTIONS)


@pytest.fixture
def reader(tmp_path: Path) -> ee.Reader:
    """Load a small reader of others."""
    return ee.Reader.from_pretrained(write_reader(tmp_path, "bert"), "cpu")


def test_own_rule_gives_the_same_answers_whatever_is_asked_for(reader: ee.Reader) -> None:
    plain = reader.predict(QUESTIONS)
    for one, few in zip(plain, reader.predict(QUESTIONS, top_k=3), strict=True):
        assert few.best == one.best[:3]
        assert few._replace(best=one.best) == one
        assert 0 < one.probability <= 1
    # Fewer spans than answers asked for: all of them.
    single = reader.predict(("x", "x"), top_k=50)
    assert [one.text for one in single.best] == ["x"]
    many = reader.predict(QUESTIONS[:1], top_k=40)[0]
    assert len(many.best) == 40


def test_an_answer_has_at_most_so_many_tokens(reader: ee.Reader) -> None:
    for rule in ("engine", "pipeline"):
        options: dict[str, Any] = {"rule": rule, "top_k": 5}
        texts = [one.text for one in reader.predict(QUESTIONS[0], max_tokens=1, **options).best]
        assert all(" " not in text for text in texts)
        texts = [one.text for one in reader.predict(QUESTIONS[0], max_tokens=20, **options).best]
        assert any(" " in text for text in texts)


def test_a_question_may_have_no_answer_where_it_is_allowed(reader: ee.Reader) -> None:
    # Contexts of one token, which is the only answer.
    pairs = [("x", letter) for letter in "aeioubcdfklmnrst"]
    open_, closed = (reader.predict(pairs, allow_none=one) for one in (True, False))
    assert closed == reader.predict(pairs)
    assert [one.text for one in closed] == [context for _, context in pairs]
    assert {one.text for one in open_} > {""}
    for one, other in zip(open_, closed, strict=True):
        assert one.null == other.null
        assert (one.null > one.best[0].score) == (not one.text)


def test_scores_of_equal_texts_are_added_by_the_rule_of_the_pipeline(reader: ee.Reader) -> None:
    pair = ("a?", "Paris " * 60)
    assert len(reader.tokenizer.encode_batch([pair[0]], [pair[1]]).ids) > 60
    (best,) = reader.predict(pair, rule="pipeline").best
    more = reader.predict(pair, rule="pipeline", top_k=10).best[0]
    assert more.score > best.score


def test_arguments_are_checked(reader: ee.Reader) -> None:
    pair = QUESTIONS[0]
    with pytest.raises(InputError, match="rule must be one of engine, pipeline, got 'squad'"):
        reader.predict(pair, rule="squad")  # type: ignore[arg-type]
    with pytest.raises(InputError, match="top_k is 0, expected at least 1"):
        reader.predict(pair, top_k=0)
    with pytest.raises(InputError, match="max_tokens is 0, expected at least 1"):
        reader.predict(pair, max_tokens=0)
    for rule in ("engine", "pipeline"):
        options: Any = {"rule": rule}
        with pytest.raises(InputError, match="row 1 is 'a'; give a pair"):
            reader.predict([pair, "a"], **options)  # type: ignore[list-item]
        with pytest.raises(InputError, match="question or context is blank") as caught:
            reader.predict([pair, ("a", " ")], **options)
        assert caught.value.row == 1
        with pytest.raises(InputError, match="leaves 0 of 100 for its context") as caught:
            reader.predict([pair, ("a " * 200, "b")], **options)
        assert caught.value.row == 1


def test_an_own_reader_answers_by_both_rules(checkpoint: Path, tmp_path: Path) -> None:
    folder = write_task_model(tmp_path / "model", checkpoint, "question-answering")
    reader = ee.Reader.from_pretrained(folder, "cpu")
    for rule in ("engine", "pipeline"):
        options: Any = {"rule": rule, "top_k": 2}
        found = reader.predict(("film", "a good film the bad plot"), **options)
        assert len(found.best) == 2
        assert found.text == "a good film the bad plot"[found.start : found.stop]
