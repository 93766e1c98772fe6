"""Predictions of texts that are cut, of models with NaN, and of what is no text, are not silent."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
import torch

import encoder_engine as ee
from encoder_engine.errors import InputError, NonFiniteVectorError, RowError, TruncationWarning
from encoder_engine.tasks.multiple_choice import MultipleChoiceTask
from encoder_engine.tasks.sequence_classification import SequenceClassificationTask
from encoder_engine.tasks.task import Windows
from encoder_engine.tasks.token_classification import TokenClassificationTask
from tests.finetuning.tiny import write_checkpoint

if TYPE_CHECKING:
    from pathlib import Path

    from encoder_engine.prediction.predictor import Predictor
    from encoder_engine.tasks.task import Task

CLASSES = SequenceClassificationTask(labels=("no", "yes"))
TAGS = TokenClassificationTask(labels=("O", "B-X", "I-X"), scheme="bio")


@pytest.fixture
def checkpoint(tmp_path: Path) -> Path:
    """Save a small encoder with random weights and a vocabulary."""
    return write_checkpoint(tmp_path / "checkpoint")


def make(kind: type[Any], task: Task[Any, Any], checkpoint: Path, **windows: Any) -> Any:
    """Return a predictor with a random head."""
    torch.manual_seed(0)
    model = task.make_model(ee.Encoder.from_pretrained(checkpoint, device="cpu"))
    tokenizer = ee.Tokenizer.from_pretrained(checkpoint)
    found: Predictor = kind(model, task, tokenizer, Windows(**{"max_length": 8, **windows}))
    return found


def test_texts_that_are_cut_are_counted(checkpoint: Path) -> None:
    long = "a good film the plot not very bad"
    classifier = make(ee.Classifier, CLASSES, checkpoint, truncate=True)
    with pytest.warns(TruncationWarning, match="1 of 2 rows have more tokens") as found:
        classifier.predict([long, "a film"])
    assert found[0].filename == __file__
    # In windows nothing is cut.
    make(ee.Classifier, CLASSES, checkpoint).predict([long, "a film"])
    chooser = make(ee.Chooser, MultipleChoiceTask(), checkpoint)
    with pytest.warns(TruncationWarning, match="1 of 1 rows have more tokens"):
        chooser.predict([(long, ["good", "bad"])])


@pytest.mark.parametrize("decoding", ["argmax", "constrained"])
def test_tags_of_a_model_with_nan_are_refused(checkpoint: Path, decoding: Any) -> None:
    # The first tag was predicted for every word.
    task = TokenClassificationTask(labels=TAGS.labels, scheme="bio", decoding=decoding)
    tagger = make(ee.Tagger, task, checkpoint)
    with torch.no_grad():
        tagger.model.encoder.blocks[0].get_submodule("attention.output").weight[0, 0] = torch.nan
    with pytest.raises(NonFiniteVectorError, match="rows 0 to 1") as found:
        tagger.predict([["a", "film"], ["good"]])
    assert found.value.rows == (0, 1)


def test_a_crf_has_tags_that_it_does_not_allow(checkpoint: Path) -> None:
    task = TokenClassificationTask(labels=TAGS.labels, scheme="bio", decoding="crf")
    [found] = make(ee.Tagger, task, checkpoint).predict([["a", "film"]])
    assert len(found.tags) == 2


def test_what_is_no_text_is_refused_by_row(checkpoint: Path) -> None:
    tagger = make(ee.Tagger, TAGS, checkpoint)
    for wrong in (None, 5):
        with pytest.raises(InputError, match=f"sentence 1 is {wrong}; give a list of words"):
            tagger.predict([["a"], wrong])
    chooser = make(ee.Chooser, MultipleChoiceTask(), checkpoint)
    pair = ("a film", ["good", "bad"])
    with pytest.raises(InputError, match=r"row 1 is .* a list of two or more endings"):
        chooser.predict([pair, ("a film", 5)])
    with pytest.raises(RowError, match=r"row 1: endings\[1\] must be a text, got 5"):
        chooser.predict([pair, ("a film", ["good", 5])])
    with pytest.raises(RowError, match="row 1: context must be a text, got int 5"):
        chooser.predict([pair, (5, ["good", "bad"])])
