"""Mistakes of other libraries that users reported, and the right results.

Each test names the reports by library and number.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import encoder_engine as ee
from encoder_engine.errors import SequenceLengthError, TruncationWarning
from encoder_engine.ops.cpu import native_instruction_set
from tests.prediction.peer_models import TEXTS, write_model
from tests.prediction.pipelines import assert_equal, by_transformers
from tests.prediction.question_models import QUESTIONS, write_reader

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = [
    pytest.mark.skipif(native_instruction_set() is None, reason="the extension is not built"),
    pytest.mark.filterwarnings("ignore:Tokenizer does not support real words:UserWarning"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning:transformers.*"),
]
IOB = ("O", "B-PER", "I-PER", "B-LOC", "I-LOC")
TOXIC = ("toxic", "severe_toxic", "obscene", "threat", "insult", "identity_hate")


def test_any_number_of_labels_have_a_sigmoid_each(tmp_path: Path) -> None:
    """Detoxify 15, vllm 23164, infinity 662: softmax over labels that are independent."""
    folder = write_model(
        tmp_path, "bert", "sequence", TOXIC, problem_type="multi_label_classification"
    )
    classifier = ee.Classifier.from_pretrained(folder, "cpu")
    found = classifier.predict("good")
    np.testing.assert_allclose(found.probabilities, 1 / (1 + np.exp(-found.logits)))
    assert found.labels == tuple(
        name for name, one in zip(TOXIC, found.logits, strict=True) if one > 0
    )
    pipe = ee.pipeline("text-classification", folder, device="cpu", top_k=None)
    scores = {row["label"]: row["score"] for row in pipe("good")[0]}
    assert [scores[name] for name in TOXIC] == found.probabilities.tolist()


def test_a_long_text_is_no_crash(tmp_path: Path) -> None:
    """Transformers 5983, langkit 46, azimuth 439: index out of range beyond the positions."""
    folder = write_model(tmp_path, "bert", "sequence", ("x", "y"))
    classifier, text = ee.Classifier.from_pretrained(folder, "cpu"), "good " * 150 + "bad " * 50
    with pytest.warns(TruncationWarning, match="1 of 2 rows have more tokens") as caught:
        cut = classifier.predict([text, "good"])
    assert len(caught) == 1
    assert cut[0].logits.tolist() == classifier.predict("good " * 62).logits.tolist()
    windows = classifier.predict(text, long="windows")
    assert windows.logits.tolist() != cut[0].logits.tolist()
    with pytest.raises(SequenceLengthError, match="row 1 has 202 tokens, the model reads 64"):
        classifier.predict(["good", text], long="error")


def test_no_text_is_lost_in_silence(tmp_path: Path) -> None:
    """Entities behind the limit are found: see transformers 15177, presidio 1805, rehydra 82."""
    tagger = ee.Tagger.from_pretrained(write_model(tmp_path, "bert", "token", IOB), "cpu")
    text = "John lives in New York and Mary in Berlin. " * 30
    found = tagger.entities(text)
    for start in range(0, len(text), 430):
        assert any(start <= one.start < start + 430 for one in found)


@pytest.mark.slow
def test_the_text_of_an_entity_is_a_slice(tmp_path: Path) -> None:
    """Robotoff 1413, transformers 12593, 12611 and 18738: words are decoded, not the text."""
    folder = write_model(tmp_path, "roberta", "token", IOB)
    text = "Jean-Luc's é café\nBerlin"
    tagger = ee.Tagger.from_pretrained(folder, "cpu")
    for aggregation in ("simple", "first"):
        found = tagger.entities(text, aggregation=aggregation)
        assert all(one.text == text[one.start : one.stop] for one in found)
        theirs = by_transformers("ner", folder)(text, aggregation_strategy=aggregation)
        assert [(one.start, one.stop) for one in found] == [
            (one["start"], one["end"]) for one in theirs
        ]


def test_every_result_is_json(tmp_path: Path) -> None:
    """Hugging Face api-inference-community 337: scores are NumPy numbers."""
    folder = write_model(tmp_path / "a", "bert", "token", IOB)
    found = ee.Tagger.from_pretrained(folder, "cpu").entities("John")
    assert found
    assert json.loads(json.dumps(found)) == [list(one) for one in found]
    pipe = ee.pipeline("question-answering", write_reader(tmp_path / "b", "bert"), device="cpu")
    answer = pipe(*QUESTIONS[0])
    assert json.loads(json.dumps(answer)) == answer


def test_as_many_answers_as_are_asked_for(tmp_path: Path) -> None:
    """Transformers 38984, 39193: fewer than ``top_k`` answers where spans are merged."""
    folder = write_reader(tmp_path, "bert")
    reader = ee.Reader.from_pretrained(folder, "cpu")
    found = reader.predict(QUESTIONS[:2], top_k=3)
    assert [len(one.best) for one in found] == [3, 3]
    assert len(reader.predict(("x", "a b"), top_k=9).best) == 3
    pipe = ee.pipeline("question-answering", folder, device="cpu")
    rows = [{"question": question, "context": context} for question, context in QUESTIONS[:2]]
    assert [len(one) for one in pipe(rows, top_k=3)] == [3, 3]


def test_the_shape_of_a_result_is_documented(tmp_path: Path) -> None:
    """Transformers 25251, 43901 and 17754: ``top_k`` and ``return_all_scores`` change shapes."""
    folder = write_model(tmp_path, "bert", "sequence", ("x", "y"))
    pipe = ee.pipeline("text-classification", folder, device="cpu")
    shapes = {
        "a text": pipe("good"),
        "of the call": pipe("good", top_k=2),
        "of the pipeline": ee.pipeline("text-classification", folder, device=-1, top_k=2)("good"),
        "all": pipe("good", return_all_scores=True),
        "a dict": pipe({"text": "good"}),
        "a list": pipe(["good", "bad"]),
        "lists": pipe(["good", "bad"], top_k=1),
    }

    def shape(value: Any) -> Any:
        return [shape(one) for one in value] if isinstance(value, list) else "row"

    assert {name: shape(value) for name, value in shapes.items()} == {
        "a text": ["row"],
        "of the call": ["row", "row"],
        "of the pipeline": [["row", "row"]],
        "all": [["row", "row"]],
        "a dict": "row",
        "a list": ["row", "row"],
        "lists": [["row"], ["row"]],
    }


@pytest.mark.slow
@pytest.mark.parametrize("pooling", ["cls", "mean"])
def test_the_pooling_of_a_classifier_is_that_of_its_config(pooling: str, tmp_path: Path) -> None:
    """Text-embeddings-inference 615, 616: ModernBERT's ``classifier_pooling`` is ignored."""
    folder = write_model(tmp_path, "modernbert", "sequence", ("x", "y"), classifier_pooling=pooling)
    texts = TEXTS[:-2]
    pipe = ee.pipeline("text-classification", folder, device="cpu")
    assert_equal(
        pipe(texts, top_k=None), by_transformers("text-classification", folder)(texts, top_k=None)
    )


@pytest.mark.filterwarnings("ignore::encoder_engine.errors.TruncationWarning")
def test_a_result_is_the_same_alone_and_beside_others(tmp_path: Path) -> None:
    """Transformers 2401, german-sentiment-lib 6: padding to the longest text changes results."""
    texts = ["x", "good " * 200, *TEXTS]
    folder = write_model(tmp_path / "a", "bert", "sequence", ("x", "y"))
    pipe = ee.pipeline("text-classification", folder, device="cpu")
    assert pipe(texts) == [pipe(text)[0] for text in texts]
    tags = ee.pipeline("ner", write_model(tmp_path / "b", "bert", "token", IOB), device="cpu")
    assert tags(texts) == [tags(text) for text in texts]


@pytest.mark.slow
def test_a_score_of_regression_is_raw(tmp_path: Path) -> None:
    """Transformers 8259: a sigmoid over a regression."""
    folder = write_model(tmp_path, "roberta", "sequence", ("LABEL_0",), problem_type="regression")
    [row] = ee.pipeline("text-classification", folder, device="cpu")("good")
    score = ee.Classifier.from_pretrained(folder, "cpu").predict("good").score
    assert row == {"label": "LABEL_0", "score": score}
    assert not 0 <= score <= 1
    assert_equal([row], by_transformers("text-classification", folder)("good"))
