"""Every task learns, scores, and is saved as transformers loads it: with equal logits."""

from __future__ import annotations

import copy
import json
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch

import encoder_engine as ee
from encoder_engine.finetuning.recipe_reader import find_recipe
from encoder_engine.finetuning.run import FineTuner, Run
from encoder_engine.inputs.tables import read_table
from encoder_engine.ops.testing import assert_within_budget, floor
from encoder_engine.prediction.predictor import Predictor
from encoder_engine.tasks.items import SavedModel
from encoder_engine.tasks.span_classification import SpanClassificationTask
from encoder_engine.tasks.token_classification import TokenClassificationTask
from encoder_engine.training.log import read_log
from tests.embedding.tiny_model import write_sentence_directory

if TYPE_CHECKING:
    from pathlib import Path

    from encoder_engine.tasks.items import Items
    from encoder_engine.tasks.task import Task

pytestmark = pytest.mark.filterwarnings("ignore::encoder_engine.errors.SuspiciousDataWarning")

# Most terms of a sum: the inputs of the feed-forward layer's second matrix.
TERMS = 64
WORDS = ["good", "bad", "film", "plot", "a", "the", "very", "not"]


def draw_texts(seed: int, num_rows: int, length: int = 6) -> list[str]:
    generator = np.random.default_rng(seed)
    return [" ".join(generator.choice(WORDS, size=length)) for _ in range(num_rows)]


def tune(
    checkpoint: Path, folder: Path, task: str, rows: list[dict[str, Any]], *settings: str
) -> Run:
    """Tune on five sixths of the rows; the others are the dev rows."""
    files, cut = [], len(rows) * 5 // 6
    for name, part in (("train", rows[:cut]), ("dev", rows[cut:])):
        path = folder / f"{name}.jsonl"
        path.write_text("".join(json.dumps(row) + "\n" for row in part))
        files.append([str(path)])
    usual = ["run.device=cpu", "run.epochs=8", "batch.examples=8", "optimizer.learning_rate=5e-3"]
    recipe = find_recipe(
        task,
        [*usual, "report.samples=100", "model.dropout=0", *settings],
        checkpoint=str(checkpoint),
        train=files[0],
        dev=files[1],
    )
    run = FineTuner(recipe, folder / "run").finetune()
    found, score = run.intervals[recipe.task.main_score], run.scores[recipe.task.main_score]
    assert found.low <= score <= found.high
    assert found.mean == score
    return run


def dev_items(run: Run, folder: Path) -> tuple[Predictor, list[Any], Items]:
    predictor = Predictor.from_pretrained(run.directory, "cpu", engine="torch")
    examples = [predictor.task.read(record) for record in read_table(folder / "dev.jsonl")]
    assert predictor.task.score_names(examples) == tuple(run.scores)
    return (
        predictor,
        examples,
        predictor.task.encode(examples, predictor.tokenizer, predictor.windows),
    )


def assert_same_as_transformers(run: Run, folder: Path, auto: str, *names: str) -> None:
    """Compare outputs of the dev rows, and the scores of the loaded model with the run's."""
    library = pytest.importorskip("transformers")
    predictor, examples, items = dev_items(run, folder)
    scores = predictor.task.score(examples, predictor.predict_examples(examples))
    assert scores == run.scores
    theirs = getattr(library, auto).from_pretrained(run.model).eval()
    exact = copy.deepcopy(theirs).double()
    rows = items.rows
    # Of all rows at once: two logits of one row may have no error by luck.
    numbers: dict[str, list[tuple[torch.Tensor, ...]]] = {name: [] for name, _ in names_of(names)}
    for place in range(len(rows.lengths)):
        row = rows.take(np.array([place]))
        ids = torch.from_numpy(row.ids.astype(np.int64))[None]
        types = None if row.type_ids is None else torch.from_numpy(row.type_ids.astype(np.int64))
        with torch.no_grad():
            given = {"input_ids": ids, "token_type_ids": None if types is None else types[None]}
            found, truth = theirs(**given), exact(**given)
        alone = items.take(np.array([place]))
        ours = predictor.model.outputs(predictor.task.collate(alone))
        for name, own in names_of(names):
            eager, true = found[name][0], truth[name][0]
            inputs = predictor.task.collate(alone)
            if inputs.rows is not None:
                # The head reads the rows of words alone.
                chosen = inputs.rows.rows.long()
                eager, true = eager[chosen], true[chosen]
            numbers[name].append((torch.from_numpy(ours[own]), eager, true))
    for name, of_rows in numbers.items():
        columns = zip(*of_rows, strict=True)
        ours_M, eager_M, truth_M = (torch.cat([t.reshape(-1) for t in one]) for one in columns)
        assert_within_budget(ours_M, eager_M, truth_M, name, terms=TERMS)


def names_of(names: tuple[str, ...]) -> list[tuple[str, str]]:
    return [(name.partition("=")[0], name.partition("=")[2]) for name in names]


@pytest.mark.slow
def test_several_labels_have_thresholds_of_their_own(checkpoint: Path, tmp_path: Path) -> None:
    rows: list[dict[str, Any]] = [
        {"text": text, "label": [w for w in ("good", "bad", "film") if w in text.split()]}
        for text in draw_texts(0, 192, 3)
    ]
    run = tune(
        checkpoint,
        tmp_path,
        "sequence-classification",
        rows,
        "task.multi_label=true",
        "run.epochs=12",
    )
    assert run.scores["exact_match"] > 90.0
    found = ee.Classifier.from_pretrained(run.model, "cpu").predict([r["text"] for r in rows[160:]])
    right = sum(
        list(one.labels) == sorted(r["label"]) for one, r in zip(found, rows[160:], strict=True)
    )
    assert 100.0 * right / 32 == run.scores["exact_match"]
    task: Any = Predictor.from_pretrained(run.model, "cpu").task
    assert len(task.thresholds) == 3
    assert_same_as_transformers(
        run, tmp_path, "AutoModelForSequenceClassification", "logits=logits"
    )
    config = json.loads((run.model / "config.json").read_text())
    assert config["problem_type"] == "multi_label_classification"
    assert list(config["id2label"].values()) == ["bad", "film", "good"]


@pytest.mark.slow
def test_scores_of_pairs_are_learned(checkpoint: Path, tmp_path: Path) -> None:
    pairs = zip(draw_texts(0, 120, 3), draw_texts(1, 120, 3), strict=True)
    rows = [
        {"text": one, "other": two, "score": (one + " " + two).split().count("good") - 1.0}
        for one, two in pairs
    ]
    run = tune(checkpoint, tmp_path, "regression", rows, "task.pair=other", "run.epochs=16")
    assert run.scores["spearman"] > 80.0
    assert_same_as_transformers(
        run, tmp_path, "AutoModelForSequenceClassification", "logits=logits"
    )
    classifier = ee.Classifier.from_pretrained(run.model, "cpu")
    high, low = classifier.predict([("good good good", "good a a"), ("a a bad", "the a a")])
    assert high.score > low.score


def test_a_run_has_a_page_without_addresses_and_scripts(checkpoint: Path, tmp_path: Path) -> None:
    rows: list[dict[str, Any]] = [
        {"words": text.split(), "tags": ["B-<i>" if w == "film" else "O" for w in text.split()]}
        for text in draw_texts(0, 36)
    ]
    for task, settings in (
        ("token-classification", ["run.epochs=2"]),
        ("sequence-classification", ["run.epochs=2", "report.samples=20"]),
    ):
        folder = tmp_path / task
        folder.mkdir()
        if task == "sequence-classification":
            rows = [
                {"text": text, "label": "<script>" if n % 2 else "&amp"}
                for n, text in enumerate(draw_texts(0, 36))
            ]
        run = tune(checkpoint, folder, task, rows, *settings)
        page = (run.directory / "report.html").read_text()
        assert "<script" not in page
        assert "http" not in page.replace("http-equiv", "").replace(
            "http://www.w3.org/2000/svg", ""
        )
        assert all(name in page for name in run.scores)
        assert ("&lt;i&gt;" if task == "token-classification" else "&lt;script&gt;") in page
    assert "Reliability, calibrated" in page
    assert "Confusion" in page


@pytest.mark.slow
def test_long_texts_are_read_in_windows(checkpoint: Path, tmp_path: Path) -> None:
    texts = draw_texts(0, 60, 40)
    for number, text in enumerate(texts):
        words = [word for word in text.split() if word not in ("good", "bad")]
        # The word that decides is behind the first window.
        texts[number] = " ".join([*words, ["good", "bad"][number % 2]])
    rows = [{"text": t, "label": ["yes", "no"][n % 2]} for n, t in enumerate(texts)]
    settings = ["data.max_length=16", "run.epochs=12"]
    run = tune(checkpoint, tmp_path, "sequence-classification", rows, *settings)
    assert run.scores["accuracy"] > 90.0
    predictor, examples, items = dev_items(run, tmp_path)
    assert len(items) > 2 * len(examples)
    found = predictor.predict_examples(examples)
    logits = predictor.model.outputs(predictor.task.collate(items))["logits"]
    mean = logits[items.examples == 3].astype(np.float64).mean(0)
    np.testing.assert_array_equal(found[3].logits, mean)
    assert_same_as_transformers(
        run, tmp_path, "AutoModelForSequenceClassification", "logits=logits"
    )


@pytest.mark.parametrize("subwords", ["first", "all"])
def test_tags_are_those_of_transformers(checkpoint: Path, tmp_path: Path, subwords: str) -> None:
    rows = [
        {"words": words, "tags": ["B-X" if word == "film" else "O" for word in words]}
        for words in (text.split() for text in draw_texts(0, 48))
    ]
    settings = [f"task.subwords={subwords}", "run.epochs=3"]
    run = tune(checkpoint, tmp_path, "token-classification", rows, *settings)
    assert_same_as_transformers(run, tmp_path, "AutoModelForTokenClassification", "logits=logits")


def test_answers_are_those_of_transformers(checkpoint: Path, tmp_path: Path) -> None:
    rows = []
    for number, context in enumerate(draw_texts(0, 48, 40)):
        text = context + " film"
        answers = {"text": ["film"], "answer_start": [text.index("film")]}
        rows.append({"id": str(number), "question": "good", "context": text, "answers": answers})
    settings = ["data.max_length=24", "data.stride=8", "run.epochs=2"]
    run = tune(checkpoint, tmp_path, "question-answering", rows, *settings)
    names = ("start_logits=starts", "end_logits=ends")
    # A step has 8 windows, not 8 questions.
    predictor = Predictor.from_pretrained(run.model, "cpu")
    examples = [predictor.task.read(record) for record in read_table(tmp_path / "train.jsonl")]
    num_windows = len(predictor.task.encode(examples, predictor.tokenizer, predictor.windows))
    assert num_windows > len(examples)
    assert len(read_log(run.directory)) == 2 * -(-num_windows // 8)
    assert_same_as_transformers(run, tmp_path, "AutoModelForQuestionAnswering", *names)


@pytest.mark.parametrize(
    "task",
    [
        TokenClassificationTask(labels=("B-X", "O"), scheme="bio", decoding="crf"),
        SpanClassificationTask(labels=("X",), max_width=2, hidden=8),
    ],
    ids=lambda task: task.name,
)
def test_weights_of_float64_are_loaded_as_they_were_saved(
    checkpoint: Path, tmp_path: Path, task: Task[Any, Any]
) -> None:
    model = task.make_model(ee.Encoder.from_pretrained(checkpoint, device="cpu")).double()
    with torch.no_grad():
        for weight in model.parameters():
            weight.div_(3.0)
    model.save_pretrained(tmp_path / "model")
    loaded = task.load_model(SavedModel(tmp_path / "model", "cpu", "float64")).state_dict()
    for name, weight in model.state_dict().items():
        assert loaded[name].dtype == torch.float64, name
        assert torch.equal(loaded[name], weight), name


@pytest.mark.slow
def test_random_labels_stay_at_chance_and_a_few_rows_are_learned(
    checkpoint: Path, tmp_path: Path
) -> None:
    drawn = np.random.default_rng(7).integers(2, size=360)
    rows = [
        {"text": text, "label": int(label)}
        for text, label in zip(draw_texts(3, 360), drawn, strict=True)
    ]
    run = tune(checkpoint, tmp_path, "sequence-classification", rows, "run.epochs=2")
    # The best of 2 checkpoints on 60 rows: 3 standard deviations are 19 points.
    assert abs(run.scores["accuracy"] - 50.0) < 20.0
    few = tmp_path / "few"
    few.mkdir()
    sixteen = [rows[n] for n in range(16)]
    again = tune(
        checkpoint, few, "sequence-classification", [*sixteen, *sixteen[:3]], "run.epochs=40"
    )
    assert again.scores["accuracy"] == 100.0


def test_the_order_of_dev_rows_changes_nothing(checkpoint: Path, tmp_path: Path) -> None:
    rows = [{"text": text, "label": int("good" in text)} for text in draw_texts(0, 96)]
    runs = []
    for name, dev in (("one", rows[80:]), ("two", rows[80:][::-1])):
        folder = tmp_path / name
        folder.mkdir()
        settings = ["run.epochs=2"]
        runs.append(tune(checkpoint, folder, "sequence-classification", rows[:80] + dev, *settings))
    assert runs[0].scores.keys() == runs[1].scores.keys()
    for name, score in runs[1].scores.items():
        # The logits are float32, in batches of other rows; a score is a mean over 16 rows.
        bound = floor(torch.tensor(score), torch.float32, terms=16 * TERMS, size=abs(score))
        assert abs(runs[0].scores[name] - score) <= bound, name
    one, two = ((run.model / "model.safetensors").read_bytes() for run in runs)
    assert one == two


def test_an_embedder_begins_as_its_directory_says(tmp_path: Path) -> None:
    directory = write_sentence_directory(
        tmp_path / "embedder",
        pooling={"word_embedding_dimension": 16, "pooling_mode_cls_token": True},
    )
    rows = [{"query": "the cat", "positive": f"a {w} cat sat"} for w in ("dog", "cat", "the")] * 4
    run = tune(directory, tmp_path, "embedding", rows, "run.epochs=1")
    task: Any = Predictor.from_pretrained(run.model, "cpu").task
    assert task.pooling == ("cls",)
    assert replace(task, pooling=()).of_checkpoint(run.model).pooling == ("cls",)
