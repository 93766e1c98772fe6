"""Pipelines give what transformers' pipelines give: dicts, shapes and numbers."""

from __future__ import annotations

import json
from itertools import product
from typing import TYPE_CHECKING, Any

import pytest

import encoder_engine as ee
from encoder_engine.errors import InputError, UnsupportedFeatureError
from encoder_engine.ops.cpu import native_instruction_set
from tests import ROOT
from tests.finetuning.task_rows import write_task_model
from tests.prediction.peer_models import FAMILIES, TEXTS, real_texts, write_model
from tests.prediction.pipelines import NLI, assert_equal, by_transformers
from tests.prediction.question_models import KINDS, QUESTIONS, SETTINGS, write_reader
from tests.selection import covering

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = [
    pytest.mark.skipif(native_instruction_set() is None, reason="the extension is not built"),
    pytest.mark.filterwarnings("ignore:Tokenizer does not support real words:UserWarning"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning:transformers.*"),
]
ENGINES: tuple[Any, ...] = ("compiled", "torch")
STARS = tuple(f"{number} stars" for number in range(1, 6))
IOB = ("O", "B-PER", "I-PER", "B-LOC", "I-LOC")
# Inputs and keywords of a call.
CLASSIFIED: list[tuple[Any, dict[str, Any]]] = [
    ("good", {}),
    (TEXTS, {}),
    ({"text": "a", "text_pair": "b"}, {}),
    ([{"text": "a", "text_pair": "b"}, "c", {"text": "d"}], {}),
    ([[["a", "b"]]], {}),
    ("good", {"top_k": 1}),
    ("good", {"top_k": None}),
    (TEXTS, {"top_k": 2}),
    ({"text": "a"}, {"top_k": 3}),
    (TEXTS, {"function_to_apply": "none", "batch_size": 4}),
    (TEXTS, {"function_to_apply": "sigmoid"}),
    (TEXTS, {"function_to_apply": "SOFTMAX", "top_k": None}),
    ("a " * 300, {"truncation": True}),
    ("a " * 300, {"truncation": True, "max_length": 20, "padding": True}),
]


def compare(task: str, folder: Path, calls: Any, engines: Any = ENGINES, **options: Any) -> None:
    """Call both libraries' pipelines with each of the inputs and keywords."""
    theirs = by_transformers(task, folder, **options)
    expected = [theirs(inputs, **keywords) for inputs, keywords in calls]
    for engine in engines:
        ours = ee.pipeline(task, folder, device=-1, engine=engine, **options)
        for (inputs, keywords), result in zip(calls, expected, strict=True):
            found = ours(inputs, **keywords)
            assert_equal(found, result, f"{engine}, {inputs!r:.40}, {keywords}")
            json.dumps(found)


PROBLEMS: dict[str, tuple[tuple[str, ...], dict[str, Any]]] = {
    "one": (STARS, {}),
    "any": (STARS, {"problem_type": "multi_label_classification"}),
    "score": (("LABEL_0",), {"problem_type": "regression"}),
    "single": (("LABEL_0",), {}),
}


@pytest.mark.slow
# In the usual run every family and every kind of labels.
@pytest.mark.parametrize(
    ("family", "problem"),
    covering(product(FAMILIES, PROBLEMS), lambda family, problem: [family, problem]),
)
def test_texts_are_classified_as_by_transformers(family: str, problem: str, tmp_path: Path) -> None:
    labels, config = PROBLEMS[problem]
    folder = write_model(tmp_path, family, "sequence", labels, **config)
    compare("text-classification", folder, CLASSIFIED)


@pytest.mark.slow
@pytest.mark.parametrize("options", [{"top_k": None}, {"top_k": 2, "function_to_apply": "none"}])
def test_options_of_the_pipeline_hold_for_its_calls(
    options: dict[str, Any], tmp_path: Path
) -> None:
    folder = write_model(tmp_path, "bert", "sequence", STARS)
    compare("sentiment-analysis", folder, CLASSIFIED, ["compiled"], **options)


@pytest.mark.slow
@pytest.mark.parametrize("family", FAMILIES)
def test_tokens_are_classified_as_by_transformers(family: str, tmp_path: Path) -> None:
    folder = write_model(tmp_path, family, "token", IOB)
    calls = [
        (TEXTS, {}),
        (TEXTS[0], {}),
        (TEXTS[0], {"aggregation_strategy": "simple"}),
        (TEXTS, {"aggregation_strategy": "FIRST"}),
        (TEXTS, {"ignore_labels": []}),
        (TEXTS, {"ignore_labels": ["PER"], "aggregation_strategy": "max"}),
        (" ".join(TEXTS), {"aggregation_strategy": "average", "stride": 9, "ignore_labels": []}),
    ]
    compare("ner", folder, calls)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::encoder_engine.errors.TruncationWarning")
@pytest.mark.parametrize("family", FAMILIES)
def test_labels_are_scored_as_by_transformers(family: str, tmp_path: Path) -> None:
    folder = write_model(tmp_path, family, "sequence", NLI)
    calls = [
        ("good", {"candidate_labels": ["a", "b", "c"]}),
        (["good"], {"candidate_labels": "a, b"}),
        (TEXTS[:9], {"candidate_labels": ["bad", "Tokyo"], "multi_label": True}),
        ("good", {"candidate_labels": ["a"], "hypothesis_template": "It is {}!"}),
        ("good", {"candidate_labels": ["a", "b", "a"]}),
        ("good " * 200, {"candidate_labels": ["a", "b"]}),
    ]
    compare("zero-shot-classification", folder, calls)
    theirs, ours = by_transformers("zero-shot-classification", folder), None
    ours = ee.pipeline("zero-shot-classification", folder, device="cpu")
    assert_equal(ours("good", ["a", "b"]), theirs("good", ["a", "b"]))


@pytest.mark.slow
@pytest.mark.parametrize("family", ["bert", "distilbert", "roberta", "xlm-roberta", "deberta-v2"])
def test_masks_are_filled_as_by_transformers(family: str, tmp_path: Path) -> None:
    folder = write_model(tmp_path, family, "masked")
    mask = ee.Tokenizer.from_pretrained(folder).spec.special.mask
    cut = {"tokenizer_kwargs": {"truncation": True}, "top_k": 2}
    calls = [
        (f"a {mask} b", {}),
        ([f"a {mask} b"], {"top_k": 2}),
        (f"New {mask} in {mask}.", {"top_k": 3}),
        ([f"café {mask} 東京 {mask}", f"é {mask}"], {"top_k": 3}),
        (f"a {mask} b", {"targets": ["a", "b"], "top_k": 9}),
        (f"{mask} " + "a " * 300, cut),
    ]
    compare("fill-mask", folder, calls)


@pytest.mark.slow
@pytest.mark.parametrize("family", FAMILIES)
def test_features_are_those_of_transformers(family: str, tmp_path: Path) -> None:
    folder = write_model(tmp_path, family, "encoder")
    calls = [
        (TEXTS[0], {}),
        (TEXTS, {}),
        ("a " * 300, {"truncation": True}),
        ("a " * 300, {"tokenize_kwargs": {"truncation": True, "max_length": 9}}),
    ]
    compare("feature-extraction", folder, calls)
    tensor = ee.pipeline("feature-extraction", folder, device="cpu")("a b", return_tensors=True)
    expected = by_transformers("feature-extraction", folder)("a b", return_tensors=True)
    assert tensor.shape == expected.shape
    assert_equal(tensor.tolist(), expected.tolist())


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::encoder_engine.errors.TruncationWarning")
@pytest.mark.parametrize(
    "family", ["bert", "xlm-roberta", pytest.param("roberta", marks=pytest.mark.exhaustive)]
)
def test_real_texts_give_the_results_of_transformers(
    family: str, tmp_path: Path, shared_data: Path
) -> None:
    texts = real_texts(shared_data, 40)
    folder = write_model(tmp_path / "sequence", family, "sequence", NLI, max_length=200)
    positions = {"max_position_embeddings": 220}
    for head, labels in (("sequence", NLI), ("token", IOB), ("encoder", ())):
        folder = write_model(
            tmp_path / head, family, head, labels, max_length=200, seed=1, **positions
        )
        if head == "sequence":
            cut = {"truncation": True}
            compare("text-classification", folder, [(texts, cut)], ["compiled"])
            labelled = {"candidate_labels": ["politics", "politique", "政治"]}
            compare("zero-shot-classification", folder, [(texts[:20], labelled)], ["compiled"])
        elif head == "token":
            calls = [(texts, {"aggregation_strategy": "simple", "stride": 20})]
            compare("token-classification", folder, calls, ["compiled"])
        else:
            compare("feature-extraction", folder, [(texts, {"truncation": True})], ["compiled"])


@pytest.mark.slow
@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("kind", KINDS)
def test_questions_are_answered_as_by_transformers_4(
    kind: str, engine: str, tmp_path: Path
) -> None:
    golden = json.loads((ROOT / "tests/golden/answers_golden.json").read_text())["answers"][kind]
    ours = ee.pipeline("question-answering", write_reader(tmp_path, kind), device="cpu")
    for setting, expected in zip(SETTINGS, golden, strict=True):
        for (question, context), result in zip(QUESTIONS, expected, strict=True):
            found = ours(question=question, context=context, **setting)
            assert_equal(found, result, f"{question!r} {setting}")
        questions, contexts = map(list, zip(*QUESTIONS, strict=True))
        assert_equal(ours(question=questions, context=contexts, **setting), expected)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Save a small classifier of 5 labels."""
    return write_model(tmp_path / "stars", "bert", "sequence", STARS)


def test_questions_are_passed_in_any_form_of_transformers(tmp_path: Path) -> None:
    pipe = ee.pipeline("question-answering", write_reader(tmp_path, "bert"), device="cpu")
    question, context = QUESTIONS[2]
    row = {"question": question, "context": context}
    expected = pipe(question=question, context=context)
    assert list(expected) == ["score", "start", "end", "answer"]
    assert pipe(row) == pipe([row]) == pipe(question, context) == expected
    assert pipe(question=[question], context=[context]) == expected
    assert pipe([row, row]) == pipe(row, row) == [expected, expected]
    assert pipe(question=[question, question], context=context) == [expected, expected]
    assert pipe(row, topk=2, max_question_len=64, padding=True) == pipe(row, top_k=2)
    with pytest.raises(InputError, match="row 1 is 'a'; give a dict of a question"):
        pipe([row, "a"])
    with pytest.raises(InputError, match="give a dict of a question and its context, texts"):
        pipe(question="", context=context)
    with pytest.raises(InputError, match="there are 1 questions and 2 contexts"):
        pipe(question=[question], context=[context, context])


def test_iterators_are_read_as_their_results_are_drawn(folder: Path) -> None:
    pipe = ee.pipeline("text-classification", folder, device="cpu")
    drawn = []

    def texts() -> Any:
        for number in range(600):
            drawn.append(number)
            yield TEXTS[number % len(TEXTS)]

    found = pipe(texts())
    assert not drawn
    first = next(found)
    assert len(drawn) < 600
    assert [first, *found] == pipe([TEXTS[n % len(TEXTS)] for n in range(600)])


def test_a_model_and_a_tokenizer_of_the_callers_own_are_used(folder: Path, tmp_path: Path) -> None:
    expected = ee.pipeline("text-classification", folder, device="cpu")(TEXTS)
    model = ee.Classifier.from_pretrained(folder, "cpu")
    assert ee.pipeline("text-classification", model)(TEXTS) == expected
    # transformers' Trainer saves checkpoints without a tokenizer.
    bare = tmp_path / "bare"
    bare.mkdir()
    for name in ("config.json", "model.safetensors"):
        (bare / name).write_bytes((folder / name).read_bytes())
    for tokenizer in (folder, ee.Tokenizer.from_pretrained(folder)):
        pipe = ee.pipeline("text-classification", bare, tokenizer=tokenizer, device="cpu")
        assert pipe(TEXTS) == expected
    with pytest.raises(InputError, match="device is of loading, and the model is loaded already"):
        ee.pipeline("text-classification", model, device="cpu")
    with pytest.raises(InputError, match=r"computes with a Tagger, got Classifier"):
        ee.pipeline("ner", model)


def test_own_models_are_pipelines_too(checkpoint: Path, tmp_path: Path) -> None:
    saved = write_task_model(tmp_path / "classes", checkpoint, "sequence-classification")
    [row] = ee.pipeline("text-classification", saved, device="cpu")("a good film")
    assert row["label"] in ("0", "1")
    saved = write_task_model(tmp_path / "tags", checkpoint, "token-classification")
    assert isinstance(ee.pipeline("ner", saved, device="cpu")("a good film"), list)
    saved = write_task_model(tmp_path / "answers", checkpoint, "question-answering")
    answer = ee.pipeline("question-answering", saved, device="cpu")("film", "a good film")
    assert "a good film"[answer["start"] : answer["end"]] == answer["answer"]


def test_unknown_tasks_and_keywords_are_named_with_the_nearest(folder: Path) -> None:
    with pytest.raises(InputError, match="did you mean 'text-classification'"):
        ee.pipeline("text-classificaton", folder)
    with pytest.raises(TypeError, match="'topk'; did you mean 'top_k'"):
        ee.pipeline("text-classification", folder, topk=2)
    pipe = ee.pipeline("text-classification", folder, device="cpu")
    with pytest.raises(TypeError, match="'truncate'; did you mean 'truncation'"):
        pipe("a", truncate=True)
    with pytest.raises(UnsupportedFeatureError, match="load it by Classifier"):
        ee.pipeline("ner", folder, device="cpu")


def test_values_of_keywords_are_checked(folder: Path, tmp_path: Path) -> None:
    pipe = ee.pipeline("text-classification", folder, device="cpu", num_workers=2)
    for options, message in (
        ({"function_to_apply": "tanh"}, "function_to_apply must be one of softmax, sigmoid, none"),
        ({"top_k": 0}, "top_k is 0, expected at least 1"),
        ({"truncation": True, "max_length": 0}, "max_length is 0"),
    ):
        with pytest.raises(InputError, match=message):
            pipe("a", **options)
    with pytest.raises(
        InputError, match=r"row 1 is \['a', 'b'\]; give a text, or a dict"
    ) as caught:
        pipe(["a", ["a", "b"]])
    assert caught.value.row == 1
    tokens = ee.pipeline("ner", write_model(tmp_path / "t", "bert", "token", IOB), device="cpu")
    for wrong in (None, 3, {"a": "b"}, {"a"}, b"a"):
        kind = type(wrong).__name__
        with pytest.raises(InputError, match=f"takes a str, or a list of them, got {kind}"):
            tokens(wrong)
    with pytest.raises(TypeError, match="takes a text or a list of texts, got 2 inputs"):
        tokens("a", "b")
    with pytest.raises(InputError, match="stride joins the entities of windows"):
        tokens("a", aggregation_strategy="none", stride=2)
    with pytest.raises(InputError, match="did you mean 'first'"):
        tokens("a", aggregation_strategy="frist")
    masked = write_model(tmp_path / "m", "bert", "masked")
    filler = ee.pipeline("fill-mask", masked, device="cpu")
    with pytest.raises(InputError, match="targets is empty"):
        filler("a [MASK]", targets=[])
    with pytest.raises(TypeError, match="tokenizer_kwargs got an unexpected keyword"):
        filler("a [MASK]", tokenizer_kwargs={"truncate": True})
    nli = ee.pipeline(
        "zero-shot-classification", write_model(tmp_path / "n", "bert", "sequence", NLI), device=-1
    )
    with pytest.raises(TypeError, match="the labels are given twice"):
        nli("a", ["b"], candidate_labels=["c"])
    with pytest.raises(InputError, match="labels must be one or more names"):
        nli("a")
