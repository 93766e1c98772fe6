"""Classifiers that others fine-tuned: as transformers' pipelines, or refused by a sentence."""

from __future__ import annotations

import json
import pickle
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch

import encoder_engine as ee
from encoder_engine.cli import main
from encoder_engine.embedding import Ranker
from encoder_engine.errors import (
    ConfigError,
    InputError,
    SequenceLengthError,
    TensorNamesError,
    TruncationWarning,
    UnsupportedFeatureError,
)
from encoder_engine.models import all_families
from tests.prediction.published import FAMILIES, TEXTS, edit_config, publish
from tests.selection import unless

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.filterwarnings("ignore::encoder_engine.errors.TruncationWarning")
PAIRS = [("a b", "b"), ("b", "a a")]
SINGLE, MULTI, REGRESSION = (
    "single_label_classification",
    "multi_label_classification",
    "regression",
)
FUNCTIONS = {SINGLE: "softmax", MULTI: "sigmoid", REGRESSION: "none"}
# The families whose tokenizers the tests can write.
TOKENIZED = (
    *(
        "albert",
        "bert",
        "distilbert",
        "electra",
        "eurobert",
        "gemma3_text",
        "llama",
        "mistral",
        "mpnet",
    ),
    *("qwen2", "qwen3", "roberta", "xlm-roberta"),
)


def refusal(num_labels: int, problem: str | None) -> str | None:
    if num_labels > 1 and problem == REGRESSION:
        return "several numbers are refused"
    return "transformers refuses it" if num_labels == 1 and problem == SINGLE else None


def of_sequences(model_type: str) -> str:
    return next(
        layout.architecture
        for layout in all_families()[model_type].layouts
        if layout.task == "sequence-classification"
    )


def by_transformers(folder: Path, rows: list[Any], function: str) -> np.ndarray[Any, Any]:
    """Return the scores of transformers' pipeline [N, C], in the order of the labels."""
    limit = ee.Classifier.from_pretrained(folder, "cpu").windows.max_length
    import transformers

    run = transformers.pipeline("text-classification", str(folder), device="cpu")
    given = [
        {"text": one[0], "text_pair": one[1]} if isinstance(one, tuple) else one for one in rows
    ]
    found = [
        run(one, top_k=None, function_to_apply=function, truncation=True, max_length=limit)
        for one in given
    ]
    config: Any = run.model.config
    names = [config.id2label[number] for number in range(config.num_labels)]
    return np.array([[{x["label"]: x["score"] for x in row}[n] for n in names] for row in found])


@pytest.mark.parametrize("engine", ["compiled", "torch"])
@pytest.mark.parametrize("problem", [None, *FUNCTIONS])
@pytest.mark.parametrize("num_labels", [1, 3])
@pytest.mark.parametrize("model_type", ["bert", "roberta"])
@unless(refusal)
def test_scores_are_those_of_the_pipeline(
    model_type: str, num_labels: int, problem: str | None, engine: Any, tmp_path: Path
) -> None:
    labels = ["bad", "good", "so so"][:num_labels]
    publish(tmp_path, model_type, of_sequences(model_type), labels, problem_type=problem)
    classifier = ee.Classifier.from_pretrained(tmp_path, "cpu", engine=engine)
    assert classifier.labels == tuple(labels)
    kind = problem or SINGLE
    if num_labels == 1:
        assert classifier.problem == "regression"
        function = "none" if kind == REGRESSION else "sigmoid"
        found = [[one.score] for one in classifier.predict([*TEXTS, *PAIRS])]
    else:
        assert classifier.problem == ("multi" if kind == MULTI else "single")
        function = FUNCTIONS[kind]
        predictions = classifier.predict([*TEXTS, *PAIRS])
        found = [one.probabilities for one in predictions]
        for one in predictions:
            best = labels[int(one.probabilities.argmax())]
            above = tuple(n for n, p in zip(labels, one.probabilities, strict=True) if p >= 0.5)
            assert one.labels == (above if kind == MULTI else (best,))
    expected = by_transformers(tmp_path, [*TEXTS, *PAIRS], function)
    np.testing.assert_allclose(np.array(found), expected, atol=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize("model_type", TOKENIZED)
def test_families_with_a_classifier_agree(model_type: str, tmp_path: Path) -> None:
    publish(tmp_path, model_type, of_sequences(model_type), ["no", "yes"])
    # Without special tokens an empty text has no token, for which transformers has no answer.
    classifier = ee.Classifier.from_pretrained(tmp_path, "cpu")
    texts = [text for text in TEXTS if len(classifier.tokenizer.encode(text))]
    found = classifier.predict(texts)
    expected = by_transformers(tmp_path, texts, "softmax")
    np.testing.assert_allclose([one.probabilities for one in found], expected, atol=1e-5)


def test_texts_without_tokens_are_refused_by_their_row(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    publish(tmp_path, "qwen3", of_sequences("qwen3"), ["no", "yes"])
    with pytest.raises(InputError, match=r"^row 2 has no token at all") as info:
        ee.Classifier.from_pretrained(tmp_path, "cpu").predict(["a", "b", "", "b"])
    assert info.value.row == 2
    with pytest.raises(InputError, match=r"^pair 1 has no token at all"):
        Ranker.from_pretrained(tmp_path, "cpu").predict([("a", "b"), ("", "")])
    lines = [json.dumps({"text": text}) for text in [*["a b"] * 5000, ""]]
    (tmp_path / "in.jsonl").write_text("\n".join(lines))
    verb = ["predict", "--device", "cpu", "--model", str(tmp_path), str(tmp_path / "in.jsonl")]
    assert main([*verb, "-o", str(tmp_path / "out.jsonl")]) == 1
    assert "in.jsonl, line 5001: has no token at all" in capsys.readouterr().err
    with pytest.raises(InputError, match=r"^row 5000 has no token at all"):
        ee.Classifier.from_pretrained(tmp_path, "cpu").predict_dataset(
            tmp_path / "in.jsonl", tmp_path / "out"
        )


@pytest.mark.parametrize("door", [ee.Classifier, Ranker])
def test_a_head_of_the_last_token_is_refused_where_that_is_padding(
    door: Any, tmp_path: Path
) -> None:
    publish(tmp_path, "qwen3", of_sequences("qwen3"), ["no", "yes"])
    path = tmp_path / "tokenizer.json"
    tokenizer = json.loads(path.read_text())
    padding = json.loads((tmp_path / "tokenizer_config.json").read_text())["pad_token"]
    number = json.loads((tmp_path / "config.json").read_text())["pad_token_id"]
    ending = {"SpecialToken": {"id": padding, "type_id": 0}}
    of_first, of_second = ({"Sequence": {"id": name, "type_id": 0}} for name in "AB")
    tokenizer["post_processor"] = {
        "type": "TemplateProcessing",
        "single": [of_first, ending],
        "pair": [of_first, of_second, ending],
        "special_tokens": {padding: {"id": padding, "ids": [number], "tokens": [padding]}},
    }
    path.write_text(json.dumps(tokenizer))
    with pytest.raises(UnsupportedFeatureError, match=rf"by token {number}, pad_token_id"):
        door.from_pretrained(tmp_path, "cpu")
    edit_config(tmp_path, pad_token_id=number + 1)
    door.from_pretrained(tmp_path, "cpu")


@pytest.fixture
def toxic(tmp_path: Path) -> Path:
    publish(tmp_path, "bert", of_sequences("bert"), ["toxic", "threat"], problem_type=MULTI)
    return tmp_path


def test_thresholds_decide_labels_by_name(toxic: Path) -> None:
    classifier = ee.Classifier.from_pretrained(toxic, "cpu")
    (found,) = classifier.predict(["a b"])
    for least in (0.0, 1.0):
        (changed,) = classifier.predict(["a b"], thresholds={"threat": least})
        np.testing.assert_array_equal(changed.probabilities, found.probabilities)
        kept = [name for name in found.labels if name != "threat"]
        assert list(changed.labels) == kept + ["threat"] * (least == 0.0)
    with pytest.raises(InputError, match=r"names 'rude'; the labels are toxic, threat"):
        classifier.predict(["a"], thresholds={"rude": 0.5})


def test_a_function_replaces_that_of_the_model(toxic: Path) -> None:
    classifier = ee.Classifier.from_pretrained(toxic, "cpu")
    for name in ("softmax", "sigmoid", "none"):
        found = [one.probabilities for one in classifier.predict(TEXTS, function=name)]
        np.testing.assert_allclose(found, by_transformers(toxic, TEXTS, name), atol=1e-5)
    with pytest.raises(InputError, match="function must be one of softmax, sigmoid, none"):
        classifier.predict(TEXTS, function="tanh")  # type: ignore[arg-type]


@pytest.mark.filterwarnings("default::encoder_engine.errors.TruncationWarning")
def test_a_long_text_is_cut_read_in_windows_or_refused(toxic: Path) -> None:
    classifier = ee.Classifier.from_pretrained(toxic, "cpu")
    long = "a b " * 60
    with pytest.warns(TruncationWarning, match="1 of 2 rows"):
        cut = classifier.predict(["a", long])
    with pytest.warns(TruncationWarning):
        again = classifier.predict(["a", long], long="cut")
    np.testing.assert_array_equal(cut[1].logits, again[1].logits)
    windows = classifier.predict(["a", long], long="windows")
    np.testing.assert_array_equal(windows[0].logits, cut[0].logits)
    assert not np.array_equal(windows[1].logits, cut[1].logits)
    with pytest.raises(SequenceLengthError, match="row 1 has") as found:
        classifier.predict(["a", long], long="error")
    assert found.value.row == 1


def test_a_row_alone_is_what_it_is_among_others(toxic: Path) -> None:
    classifier = ee.Classifier.from_pretrained(toxic, "cpu")
    rows: list[Any] = ["a b", ("a", "b"), "b"]
    together = classifier.predict(rows)
    for row, one in zip(rows, together, strict=True):
        np.testing.assert_array_equal(classifier.predict(row).logits, one.logits)
    assert classifier.predict([]) == []
    assert len(classifier.predict(["a", "b"])) == 2
    with pytest.raises(InputError, match="row 1 is 3, the model reads a text or a pair"):
        classifier.predict(["a", 3])  # type: ignore[list-item]


NLI = ["contradiction", "neutral", "entailment"]


@pytest.mark.parametrize("engine", ["compiled", "torch"])
@pytest.mark.parametrize("order", [NLI, NLI[::-1], [name.upper() for name in NLI]])
@pytest.mark.parametrize("multi_label", [False, True])
def test_labels_of_a_text_are_scored_by_entailment(
    order: list[str], multi_label: bool, engine: Any, tmp_path: Path
) -> None:
    model = publish(tmp_path, "roberta", of_sequences("roberta"), order)
    classifier = ee.ZeroShotClassifier.from_pretrained(tmp_path, "cpu", engine=engine)
    texts, labels = ["a b", "b a b"], ["b", "a b a", "a"]
    found = classifier.predict(texts, labels, template="a {}", multi_label=multi_label)
    lowered = [name.lower() for name in order]
    entail, contradict = lowered.index("entailment"), lowered.index("contradiction")
    for text, one in zip(texts, found, strict=True):
        rows = []
        for label in labels:
            ids = classifier.tokenizer.encode_batch([text], [f"a {label}"]).ids
            with torch.no_grad():
                logits = model(torch.from_numpy(ids).long()[None]).logits[0].double().numpy()
            rows.append(logits[[contradict, entail]] if multi_label else logits[[entail]])
        exps = np.exp(np.array(rows))
        scores = exps[:, -1] / (exps.sum(1) if multi_label else exps.sum())
        best = np.argsort(-scores, kind="stable")
        assert one.labels == tuple(labels[n] for n in best)
        np.testing.assert_allclose(one.scores, scores[best], atol=1e-5)
    alone = classifier.predict(texts[0], labels, template="a {}", multi_label=multi_label)
    np.testing.assert_array_equal(alone.scores, found[0].scores)


def test_a_model_without_entailment_is_no_zero_shot_classifier(toxic: Path) -> None:
    with pytest.raises(UnsupportedFeatureError, match="none of the labels toxic, threat"):
        ee.ZeroShotClassifier.from_pretrained(toxic, "cpu")


def test_labels_and_templates_that_cannot_be_used_are_refused(tmp_path: Path) -> None:
    publish(tmp_path, "roberta", of_sequences("roberta"), ["entailment", "not_entailment"])
    classifier = ee.ZeroShotClassifier.from_pretrained(tmp_path, "cpu")
    wrong: list[tuple[Any, dict[str, Any], str]] = [
        ("a, b", {}, r"must be a list of names, got one text; pass \['a, b'\]"),
        ([], {}, "one or more names"),
        (["a", " "], {}, "not blank"),
        (["a"], {"template": "nothing"}, r"must hold \{\}"),
    ]
    for labels, options, message in wrong:
        with pytest.raises(InputError, match=message):
            classifier.predict("a", labels, **options)
    # Of two labels, the other one contradicts.
    assert 0.0 < classifier.predict("a", ["b"]).scores[0] < 1.0


REFUSED: list[tuple[str, str, dict[str, Any], Any, type[Exception], str]] = [
    ("bert", "BertForTokenClassification", {}, ee.Classifier, UnsupportedFeatureError, "by Tagger"),
    ("bert", "BertForQuestionAnswering", {}, ee.Classifier, UnsupportedFeatureError, "by Reader"),
    ("bert", "BertForMultipleChoice", {}, ee.Tagger, UnsupportedFeatureError, "by Chooser"),
    (
        "bert",
        "BertForSequenceClassification",
        {},
        ee.Reader,
        UnsupportedFeatureError,
        "by Classifier",
    ),
    ("bert", "BertModel", {}, ee.Classifier, ConfigError, "names BertModel"),
    (
        "bert",
        "BertModel",
        {"architectures": ["BertForSequenceClassification"]},
        ee.Classifier,
        TensorNamesError,
        "holds no head of BertForSequenceClassification",
    ),
    (
        "bert",
        "BertForSequenceClassification",
        {"problem_type": "ranking"},
        ee.Classifier,
        ConfigError,
        "problem_type",
    ),
]


@pytest.mark.parametrize(
    ("model_type", "architecture", "changes", "loader", "error", "message"), REFUSED
)
def test_a_head_of_another_task_is_refused_by_a_sentence(
    model_type: str,
    architecture: str,
    changes: dict[str, Any],
    loader: Any,
    error: type[Exception],
    message: str,
    tmp_path: Path,
) -> None:
    publish(tmp_path, model_type, architecture, ["no", "yes"])
    edit_config(tmp_path, **changes)
    with pytest.raises(error, match=message):
        loader.from_pretrained(tmp_path, "cpu")


@pytest.mark.parametrize(
    ("file", "library"),
    [("model_head.pkl", "SetFit"), ("meta.json", "spaCy")],
)
def test_a_model_of_another_library_is_refused_by_its_name(
    file: str, library: str, tmp_path: Path
) -> None:
    (tmp_path / file).write_text("{}")
    with pytest.raises(UnsupportedFeatureError, match=f"has {file}: it is a model of .*{library}"):
        ee.Classifier.from_pretrained(tmp_path, "cpu")


@pytest.mark.parametrize("changes", [{"architectures": None}, {"finetuning_task": "sst-2"}])
def test_what_config_json_may_lack(changes: dict[str, Any], tmp_path: Path) -> None:
    publish(tmp_path, "bert", of_sequences("bert"), ["no", "yes"])
    expected = ee.Classifier.from_pretrained(tmp_path, "cpu").predict("a b")
    edit_config(tmp_path, **changes)
    found = ee.Classifier.from_pretrained(tmp_path, "cpu").predict("a b")
    np.testing.assert_array_equal(found.logits, expected.logits)


def test_equal_names_are_no_fault(tmp_path: Path) -> None:
    publish(tmp_path, "bert", of_sequences("bert"), ["yes", "no", "yes"])
    found = ee.Classifier.from_pretrained(tmp_path, "cpu").predict("a b")
    assert found.labels in (("yes",), ("no",))
    assert len(found.probabilities) == 3


def test_every_family_names_its_classifier() -> None:
    for model_type in FAMILIES:
        for layout in all_families()[model_type].layouts:
            if layout.task == "sequence-classification":
                assert layout.architecture.endswith("ForSequenceClassification")


def test_the_verb_predicts_files_by_a_published_model(
    toxic: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = tmp_path_factory.mktemp("rows")
    (folder / "in.jsonl").write_text('{"text": "a b"}\n{"text": "b"}\n')
    output = folder / "out.jsonl"
    verb = ["predict", "--model", str(toxic), str(folder / "in.jsonl"), "-o", str(output)]
    assert main([*verb, "--device", "cpu"]) == 0
    rows = [json.loads(line) for line in output.read_text().splitlines()]
    found = ee.Classifier.from_pretrained(toxic, "cpu").predict(["a b", "b"])
    for row, one in zip(rows, found, strict=True):
        assert row["prediction"] == list(one.labels)
        assert list(row["probabilities"].values()) == one.probabilities.tolist()


@pytest.fixture(scope="module")
def rows(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("rows")
    lines = [{"id": f"r{n}", "text": "a b " * (n % 7), "other": "b" * (n % 3)} for n in range(40)]
    (folder / "in.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    return folder / "in.jsonl"


@pytest.mark.parametrize("problem", [SINGLE, MULTI])
@pytest.mark.parametrize("workers", [1, 2])
@pytest.mark.slow
def test_a_job_writes_the_columns_of_predictions(
    problem: str, workers: int, rows: Path, tmp_path: Path
) -> None:
    import pyarrow.parquet

    model = tmp_path / "model"
    model.mkdir()
    publish(model, "bert", of_sequences("bert"), ["no", "yes"], problem_type=problem)
    verb = ["predict", "--model", str(model), str(rows), "--device", "cpu", "--id-column", "id"]
    job = ["-o", f"{tmp_path}/out/", "--shard-rows", "15", "--workers", str(workers)]
    assert main([*verb, *job]) == 0
    # A second call finds all rows there.
    assert main([*verb, *job]) == 0
    texts = [json.loads(line)["text"] for line in rows.read_text().splitlines()]
    expected = ee.Classifier.from_pretrained(model, "cpu").predict(texts)
    shards = sorted((tmp_path / "out").glob("part-*.parquet"))
    assert len(shards) == 3
    table = pyarrow.concat_tables([pyarrow.parquet.read_table(shard) for shard in shards])
    assert table["id"].to_pylist() == [f"r{n}" for n in range(len(texts))]
    found = table["labels" if problem == MULTI else "label"].to_pylist()
    assert found == [list(p.labels) if problem == MULTI else p.labels[0] for p in expected]
    np.testing.assert_array_equal(
        table["probabilities"].to_pylist(), [one.probabilities for one in expected]
    )


def test_a_job_that_was_stopped_goes_on(
    toxic: Path,
    rows: Path,
    tmp_path_factory: pytest.TempPathFactory,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from encoder_engine.jobs import workers

    folder = tmp_path_factory.mktemp("jobs")
    classifier = ee.Classifier.from_pretrained(toxic, "cpu")
    classifier.predict_dataset(rows, folder / "whole", shard_rows=10)
    compute = workers.compute_window

    def stop(kind: Any, half: Any, options: Any) -> Any:
        if half.first_row >= 20:
            raise KeyboardInterrupt
        return compute(kind, half, options)

    with monkeypatch.context() as patch:
        patch.setattr(workers, "compute_window", stop)
        with pytest.raises(KeyboardInterrupt, match="20 rows are kept"):
            classifier.predict_dataset(rows, folder / "out", shard_rows=10)
    summary = classifier.predict_dataset(rows, folder / "out", shard_rows=10)
    assert (summary.rows, summary.resumed_rows) == (40, 20)
    for shard in sorted((folder / "whole").glob("part-*")):
        assert (folder / "out" / shard.name).read_bytes() == shard.read_bytes()


def test_entities_are_a_column_of_a_table(tmp_path: Path, rows: Path) -> None:
    import pyarrow.parquet

    labels = ["O", "B-PER", "I-PER"]
    publish(tmp_path, "bert", "BertForTokenClassification", labels)
    tagger = ee.Tagger.from_pretrained(tmp_path, "cpu")
    output = tmp_path / "out.parquet"
    tagger.predict_dataset(rows, output)
    texts = [json.loads(line)["text"] for line in rows.read_text().splitlines()]
    expected = [[one._asdict() for one in row] for row in tagger.entities(texts)]
    found = pyarrow.parquet.read_table(output)["entities"].to_pylist()
    assert found == expected
    assert any(found)


def test_answers_are_columns_of_a_table(tmp_path: Path, rows: Path) -> None:
    import pyarrow.parquet

    publish(tmp_path, "bert", "BertForQuestionAnswering", ["start", "end"])
    reader = ee.Reader.from_pretrained(tmp_path, "cpu")
    lines = [{"question": "a", "context": "b a b " * n} for n in (1, 3, 30)]
    source = tmp_path / "questions.jsonl"
    source.write_text("".join(json.dumps(line) + "\n" for line in lines))
    output = tmp_path / "out.parquet"
    reader.predict_dataset(source, output, column="question", pair_column="context")
    table = pyarrow.parquet.read_table(output)
    expected = reader.predict([(line["question"], line["context"]) for line in lines])
    assert table["answer"].to_pylist() == [one.text for one in expected]
    assert table["start"].to_pylist() == [one.start for one in expected]
    assert table["score"].to_pylist() == [one.probability for one in expected]


def test_a_step_adds_the_columns_of_a_job(tmp_path: Path) -> None:
    publish(tmp_path, "bert", of_sequences("bert"), ["no", "yes"])
    expected = ee.Classifier.from_pretrained(tmp_path, "cpu").predict(TEXTS)
    step = ee.PredictBatch(str(tmp_path), device="cpu", text_column="body")
    for one in (step, pickle.loads(pickle.dumps(step))):
        found = one({"id": [1, 2, 3, 4, 5], "body": TEXTS})
        assert list(found) == ["id", "body", "label", "score", "probabilities"]
        assert found["label"] == [row.labels[0] for row in expected]
        np.testing.assert_array_equal(found["score"], [row.probabilities.max() for row in expected])
    none = step({"body": []})
    assert (none["label"], none["score"].dtype) == ([], np.float64)
    unknown: Any = {"text_colum": "body"}
    with pytest.raises(TypeError, match="text_colum"):
        ee.PredictBatch(str(tmp_path), **unknown)
    with pytest.raises(InputError, match="no column 'body'; there are text"):
        step({"text": TEXTS})
    with pytest.raises(InputError, match="'score' already; rename or drop it"):
        step({"body": TEXTS, "score": TEXTS})
    pairs = ee.PredictBatch(str(tmp_path), device="cpu", pair_column="other")
    found = pairs({"text": ["a"], "other": ["b"]})
    (row,) = ee.Classifier.from_pretrained(tmp_path, "cpu").predict([("a", "b")])
    np.testing.assert_array_equal(found["probabilities"], [row.probabilities])
