"""Each difference from transformers' pipelines: a row of docs/pipelines.md, and a test here.

Where it is quick, the test shows what transformers does as well.
"""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch

import encoder_engine as ee
from encoder_engine.errors import (
    InputError,
    NonFiniteVectorError,
    RowError,
    TruncationWarning,
    UnsupportedFeatureError,
)
from encoder_engine.ops.cpu import native_instruction_set
from tests import ROOT
from tests.prediction.peer_models import TEXTS, write_model
from tests.prediction.pipelines import NLI, assert_equal, by_transformers
from tests.prediction.question_models import QUESTIONS, write_reader

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

pytestmark = [
    pytest.mark.skipif(native_instruction_set() is None, reason="the extension is not built"),
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore:Tokenizer does not support real words:UserWarning"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning:transformers.*"),
]
IOB = ("O", "B-PER", "I-PER", "B-LOC", "I-LOC")
LONG = "good " * 300
TESTED: list[str] = []


def difference(place: str) -> Callable[[Any], Any]:
    """Name the row of docs/pipelines.md that a test is of."""
    TESTED.append(place)
    return lambda test: test


def ours(task: str, folder: Path, **options: Any) -> Any:
    return ee.pipeline(task, folder, device="cpu", **options)


def test_every_difference_has_a_test() -> None:
    page = (ROOT / "docs" / "pipelines.md").read_text()
    rows = re.findall(r"^\| ([^|]+) \|", page.split("## Differences")[1], re.MULTILINE)
    assert rows[0] == "place"
    assert rows[1:] == TESTED


@difference("long text")
def test_a_long_text_is_cut_with_a_warning(tmp_path: Path) -> None:
    classes = write_model(tmp_path / "a", "bert", "sequence", ("x", "y"))
    encoder = write_model(tmp_path / "b", "bert", "encoder")
    for task, folder in (("text-classification", classes), ("feature-extraction", encoder)):
        theirs = by_transformers(task, folder)
        with pytest.raises(RuntimeError):
            theirs(LONG)
        with pytest.warns(TruncationWarning):
            found = ours(task, folder)(LONG)
        assert found
    assert_equal(
        ours("text-classification", classes)(LONG, truncation=True),
        by_transformers("text-classification", classes)(LONG, truncation=True),
    )


@difference("empty list")
def test_no_text_gives_no_result(tmp_path: Path) -> None:
    folder = write_model(tmp_path / "a", "bert", "sequence", NLI)
    with pytest.raises(IndexError):
        by_transformers("text-classification", folder)([])
    assert ours("text-classification", folder)([]) == []
    assert ours("zero-shot-classification", folder)([], ["a"]) == []
    assert ours("ner", write_model(tmp_path / "b", "bert", "token", IOB))([]) == []
    assert ours("fill-mask", write_model(tmp_path / "c", "bert", "masked"))([]) == []
    assert ours("feature-extraction", folder)([]) == []
    assert ours("question-answering", write_reader(tmp_path / "d", "bert"))([]) == []


@difference("tuple of texts")
def test_a_tuple_of_texts_is_a_list(tmp_path: Path) -> None:
    folder = write_model(tmp_path, "bert", "sequence", ("x", "y"))
    pipe = ours("text-classification", folder)
    assert pipe(("good", "bad")) == pipe(["good", "bad"])
    assert isinstance(by_transformers("text-classification", folder)(("good", "bad")), dict)


@difference("all scores")
def test_all_scores_are_returned_where_they_are_asked_for(tmp_path: Path) -> None:
    folder = write_model(tmp_path, "bert", "sequence", ("x", "y", "z"))
    pipe = ours("text-classification", folder)
    [rows] = pipe("good", return_all_scores=True)
    assert [row["label"] for row in rows] == ["x", "y", "z"]
    assert sorted(rows, key=lambda row: -row["score"]) == pipe("good", top_k=None)
    assert pipe(["good"], return_all_scores=True) == [rows]
    assert ours("text-classification", folder, return_all_scores=True)("good") == [rows]
    assert pipe("good", return_all_scores=False) == pipe("good")


@difference("end of a text")
def test_the_end_of_a_long_text_has_entities(tmp_path: Path) -> None:
    folder = write_model(tmp_path, "bert", "token", IOB)
    text = "John lives in New York and Mary in Berlin. " * 30
    assert by_transformers("ner", folder)(text)[-1]["end"] < 300
    assert ours("ner", folder)(text)[-1]["end"] > 1000


@difference("score of an entity")
def test_scores_of_entities_are_json(tmp_path: Path) -> None:
    folder = write_model(tmp_path, "bert", "token", IOB)
    with pytest.raises(TypeError, match="not JSON serializable"):
        json.dumps(by_transformers("ner", folder)(TEXTS[0]))
    for options in ({}, {"aggregation_strategy": "max"}):
        assert json.loads(json.dumps(ours("ner", folder)(TEXTS[0], **options)))


@difference("word of an entity")
def test_the_word_of_an_entity_is_its_text(tmp_path: Path) -> None:
    folder = write_model(tmp_path, "roberta", "token", ("x", "y"))
    theirs = by_transformers("ner", folder, aggregation_strategy="first")(TEXTS[0])
    found = ours("ner", folder, aggregation_strategy="first")(TEXTS[0])
    assert_equal(found, theirs)
    assert any("\ufffd" in row["word"] for row in theirs)
    for row in found:
        assert row["word"] == TEXTS[0][row["start"] : row["end"]].strip()


def with_tags(pipe: Any, tags: list[int], monkeypatch: pytest.MonkeyPatch) -> Any:
    """Make a pipeline's model predict these tags."""

    def outputs(batch: Any) -> dict[str, Any]:
        count = len(pipe.model.task.labels)
        assert len(batch.chosen) == len(tags)
        return {"logits": np.where(np.arange(count) == np.array(tags)[:, None], 9.0, 0.0)}

    monkeypatch.setattr(pipe.model.engine, "outputs", outputs)
    return pipe


@difference("scheme of labels")
def test_entities_of_bioes_are_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    labels = ("O", "B-X", "I-X", "E-X", "S-X")
    folder = write_model(tmp_path, "bert", "token", labels)
    pipe = ours("ner", folder, aggregation_strategy="simple")
    found = with_tags(pipe, [1, 2, 3, 4, 0], monkeypatch)("a b c d e")
    assert [(row["entity_group"], row["word"]) for row in found] == [("X", "a b c"), ("X", "d")]


@difference("hyphen in a label")
def test_a_plain_label_keeps_its_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = write_model(tmp_path, "bert", "token", ("DATE-TIME", "O"))
    pipe = ours("ner", folder, aggregation_strategy="simple")
    [row] = with_tags(pipe, [0, 0, 1], monkeypatch)("a b c")
    assert (row["entity_group"], row["word"]) == ("DATE-TIME", "a b")


@difference("entity without characters")
def test_an_entity_without_characters_is_given_once(tmp_path: Path) -> None:
    folder = write_model(tmp_path, "modernbert", "token", IOB)
    text, options = " ".join(TEXTS), {"aggregation_strategy": "average", "stride": 9}
    first, *theirs = by_transformers("ner", folder)(text, **options)
    assert first == theirs[0]
    assert first["start"] == first["end"]
    assert_equal(ours("ner", folder)(text, **options), theirs)


@difference("contradiction")
def test_a_contradiction_is_found_by_name(tmp_path: Path) -> None:
    folder = write_model(tmp_path, "bert", "sequence", ("neutral", "entailment", "contradiction"))
    [score] = ours("zero-shot-classification", folder)("good", ["a"])["scores"]
    classifier = ee.Classifier.from_pretrained(folder, "cpu")
    logits = classifier.predict(("good", "This example is a.")).logits
    assert abs(score - 1 / (1 + np.exp(logits[2] - logits[1]))) < 1e-6
    [theirs] = by_transformers("zero-shot-classification", folder)("good", ["a"])["scores"]
    assert abs(theirs - 1 / (1 + np.exp(logits[0] - logits[1]))) < 1e-5


@difference("large logits")
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_large_logits_give_numbers(tmp_path: Path) -> None:
    folder = write_model(tmp_path, "bert", "sequence", NLI)
    import transformers

    kinds: Any = transformers.AutoModelForSequenceClassification
    model = kinds.from_pretrained(folder)
    with torch.no_grad():
        model.classifier.bias.add_(200.0)
    model.save_pretrained(folder)
    assert np.isnan(
        by_transformers("zero-shot-classification", folder)("good", ["a", "b"])["scores"]
    ).all()
    scores = ours("zero-shot-classification", folder)("good", ["a", "b"])["scores"]
    assert abs(sum(scores) - 1) < 1e-9


@difference("model without entailment")
def test_a_model_without_entailment_is_refused(tmp_path: Path) -> None:
    folder = write_model(tmp_path, "bert", "sequence", ("x", "y", "z"))
    assert by_transformers("zero-shot-classification", folder)("good", ["a", "b"])["labels"]
    with pytest.raises(UnsupportedFeatureError, match="none of the labels x, y, z is an entailm"):
        ours("zero-shot-classification", folder)


@difference("empty premise")
def test_an_empty_text_has_scores(tmp_path: Path) -> None:
    folder = write_model(tmp_path, "bert", "sequence", NLI)
    with pytest.raises(ValueError, match="at least one sequence"):
        by_transformers("zero-shot-classification", folder)("", ["a", "b"])
    assert ours("zero-shot-classification", folder)("", ["a", "b"])["sequence"] == ""


@difference("long question")
def test_a_question_without_room_for_its_context_is_refused(tmp_path: Path) -> None:
    pipe = ours("question-answering", write_reader(tmp_path, "bert"))
    with pytest.raises(InputError, match="leaves 0 of 100 for its context") as caught:
        pipe([{"question": "a", "context": "b"}, {"question": "a " * 200, "context": "b"}])
    assert caught.value.row == 1


@difference("windows beyond the model")
def test_windows_are_as_long_as_the_model_reads(tmp_path: Path) -> None:
    pipe = ours("question-answering", write_reader(tmp_path, "bert"))
    question, context = QUESTIONS[1]
    assert pipe(question, context * 3, max_seq_len=4000)["answer"]
    most = pipe.model.engine.spec.max_length
    assert most == 104
    assert pipe(question, context, max_seq_len=4000) == pipe(question, context, max_seq_len=most)


@difference("target of several tokens")
def test_a_target_of_several_tokens_is_refused(tmp_path: Path) -> None:
    folder = write_model(tmp_path, "bert", "masked")
    theirs = by_transformers("fill-mask", folder)("a [MASK] b", targets=["xylophone"])
    assert [row["token_str"] for row in theirs] == ["x"]
    with pytest.raises(InputError, match="the target 'xylophone' has 9 tokens, a mask takes one"):
        ours("fill-mask", folder)("a [MASK] b", targets=["xylophone"])


@difference("long text with a mask")
def test_a_long_text_with_a_mask_is_refused_with_its_row(tmp_path: Path) -> None:
    folder = write_model(tmp_path, "bert", "masked")
    with pytest.raises(RuntimeError):
        by_transformers("fill-mask", folder)("[MASK] " + LONG)
    pipe = ours("fill-mask", folder)
    with pytest.raises(RowError, match="the model takes 96") as caught:
        pipe(["a [MASK]", "[MASK] " + LONG])
    assert caught.value.row == 1
    assert pipe("[MASK] " + LONG, tokenizer_kwargs={"truncation": True})


@difference("not a number")
def test_a_result_that_is_no_number_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pipe = ours("text-classification", write_model(tmp_path, "bert", "sequence", ("x", "y")))
    monkeypatch.setattr(
        pipe.model.engine, "outputs", lambda _batch: {"logits": np.array([[np.nan, 1.0]])}
    )
    with pytest.raises(NonFiniteVectorError, match="computed NaN or infinity"):
        pipe("good")


@difference("unknown keyword")
def test_an_unknown_keyword_is_named(tmp_path: Path) -> None:
    folder = write_model(tmp_path, "bert", "token", IOB)
    with pytest.raises(TypeError, match="did you mean 'aggregation_strategy'"):
        ours("ner", folder, agregation_strategy="simple")
    with pytest.raises(TypeError, match="'strides'; did you mean 'stride'"):
        ours("ner", folder)("a", strides=1)
