"""Every predictor takes a single row for its prediction, and rows of Arrow as those of a list."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pyarrow
import pytest

import encoder_engine as ee
from encoder_engine.errors import InputError
from tests.finetuning.task_rows import write_task_model

if TYPE_CHECKING:
    from pathlib import Path

CASES: dict[str, tuple[Any, Any, Any]] = {
    "sequence-classification": (ee.Classifier, "a good film", "bad plot"),
    "regression": (ee.Classifier, "a good film", "bad plot"),
    "question-answering": (ee.Reader, ("good", "a good film"), ("bad", "the plot")),
    "multiple-choice": (ee.Chooser, ("a film", ["good", "bad"]), ("the", ["plot", "film"])),
}


@pytest.mark.parametrize("task", CASES)
@pytest.mark.parametrize("engine", ["compiled", "torch"])
def test_a_single_row_gives_its_prediction(
    checkpoint: Path, tmp_path: Path, task: str, engine: Any
) -> None:
    kind, one, other = CASES[task]
    directory = write_task_model(tmp_path / "model", checkpoint, task, {})
    predictor = kind.from_pretrained(directory, "cpu", engine=engine)
    rows = predictor.predict([one, other])
    assert str(predictor.predict(one)) == str(rows[0])
    assert [str(row) for row in predictor.predict([one])] == [str(rows[0])]
    assert predictor.predict([]) == []
    if not isinstance(one, tuple):
        found = predictor.predict(pyarrow.array([one, other]))
        assert [str(row) for row in found] == [str(row) for row in rows]


def test_a_pair_is_one_row_where_the_model_reads_pairs(checkpoint: Path, tmp_path: Path) -> None:
    directory = write_task_model(tmp_path / "model", checkpoint, "sequence-classification", {})
    classifier = ee.Classifier.from_pretrained(directory, "cpu")
    classifier.task = replace(classifier.task, pair="context")  # type: ignore[type-var]
    pair = ("a good film", "bad plot")
    assert str(classifier.predict(pair)) == str(classifier.predict([pair])[0])
    for wrong in ("a text", ["a text"]):
        with pytest.raises(InputError, match="the model reads a pair of texts a row"):
            classifier.predict(wrong)


def test_sentences_are_lists_of_words_and_the_advice_can_be_followed(
    checkpoint: Path, tmp_path: Path
) -> None:
    directory = write_task_model(tmp_path / "model", checkpoint, "token-classification", {})
    tagger, text = ee.Tagger.from_pretrained(directory, "cpu"), "a good film"
    # The last may be two sentences of a language without spaces, or one of two words.
    for unsplit in (text, [text], ["good", "film"]):
        with pytest.raises(InputError, match=r"such as \[text.split\(\)\]"):
            tagger.predict(unsplit)
    rows = tagger.predict([text.split(), ["bad", "plot"]])
    assert [len(row.tags) for row in rows] == [3, 2]
    found = tagger.predict(pyarrow.array([text.split(), ["bad", "plot"]]))
    assert [str(row) for row in found] == [str(row) for row in rows]
