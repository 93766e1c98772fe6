"""Dev rows and metrics that cannot be scored are refused before a model is trained."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from encoder_engine.errors import ConfigError, RowError
from encoder_engine.finetuning.data import TaskData, prepare_data
from encoder_engine.finetuning.recipe_reader import find_recipe

if TYPE_CHECKING:
    from pathlib import Path

Rows = list[dict[str, Any]]

PLAIN: Rows = [{"query": "good", "positive": "film"}, {"query": "bad", "positive": "plot"}]
SCORED: Rows = [
    row | {"text": "a", "score": score} for row, score in zip(PLAIN, (0.9, 0.1), strict=True)
]
VECTORS: Rows = [{"query": "good", "vector": [0.5] * 32}, {"query": "bad", "vector": [1.0] * 32}]
LISTS: Rows = [{"query": "good", "positive": "film", "negatives": ["plot"]}] * 2
LOGITS: Rows = [row | {"score": [2.5, -1.5]} for row in LISTS]
TEXTS: Rows = [{"text": "good", "label": "yes"}, {"text": "bad", "label": "no"}]
EQUAL = r"line 1: (spearman|pearson) of equal scores is undefined, and all rows \(3\) have .* 0\.9"
EMBEDDERS = ("embedding", "late-interaction", "sparse")


def prepare(
    checkpoint: Path, folder: Path, task: str, train: Rows, dev: Rows, *settings: str
) -> TaskData:
    """Read the rows as a run does, without a step of training."""
    files = [folder / "train.jsonl", folder / "dev.jsonl"]
    for file, rows in zip(files, (train, dev), strict=True):
        file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    names = ([str(file)] for file in files)
    recipe = find_recipe(
        task, settings, checkpoint=str(checkpoint), train=next(names), dev=next(names)
    )
    return prepare_data(recipe)


@pytest.mark.parametrize(
    ("task", "setting", "train", "dev", "message"),
    [
        *((task, "", PLAIN, SCORED, "line 1: ndcg.*task.metric=spearman") for task in EMBEDDERS),
        ("embedding", "", SCORED, PLAIN, "line 1: spearman.*1 documents and 0 scores.*=ndcg"),
        ("embedding", "", SCORED, [SCORED[0], PLAIN[1]], "line 2: spearman compares"),
        ("embedding", "task.metric=spearman", VECTORS, PLAIN, "line 1: spearman compares"),
        ("embedding", "", VECTORS, SCORED, "line 1: vector has no teacher's.*task.metric=ndcg"),
        ("embedding", "", PLAIN, VECTORS, r"line 1: positive names no.*the row has query, vector"),
        ("late-interaction", "", PLAIN, [PLAIN[0], VECTORS[1]], "line 2: positive names no docu"),
        ("sparse", "", PLAIN, VECTORS, "line 1: positive names no document"),
        ("ranking", "task.loss=listwise", LOGITS, LOGITS, "line 1: the lowest score is -1.5"),
        ("ranking", "", LISTS, [LISTS[0], PLAIN[0]], r"line 2: all documents \(1\) have the label"),
        ("ranking", "", LISTS, SCORED, "line 1: ndcg scores how documents are ranked"),
        ("ranking", "", SCORED, LISTS, "line 1: spearman compares.*2 documents and 0 scores"),
        *(
            (task, f"selection.metric={metric}", SCORED, SCORED[:1] * 3, EQUAL)
            for task in (*EMBEDDERS, "ranking", "regression")
            for metric in ("spearman", "pearson")
        ),
    ],
)
def test_rows_that_a_metric_does_not_score_are_refused_by_their_place(
    checkpoint: Path,
    tmp_path: Path,
    task: str,
    setting: str,
    train: Rows,
    dev: Rows,
    message: str,
) -> None:
    with pytest.raises(RowError, match=rf"dev\.jsonl, {message}"):
        prepare(checkpoint, tmp_path, task, train, dev, *filter(None, [setting]))


@pytest.mark.parametrize(
    ("task", "setting", "rows", "message"),
    [
        ("embedding", "task.metric=ndgc", PLAIN, "'ndgc'.*did you mean 'ndcg'"),
        ("embedding", "selection.metric=ndcg", VECTORS, "cosine or negative_mse"),
        ("ranking", "task.metric=recall", LISTS, "set task.metric or .* to ndcg, mrr or map"),
        ("sequence-classification", "selection.metric=micro_f1", TEXTS, "did you mean 'macro_f1'"),
    ],
)
def test_a_metric_that_the_rows_do_not_have_is_refused(
    checkpoint: Path, tmp_path: Path, task: str, setting: str, rows: Rows, message: str
) -> None:
    with pytest.raises(ConfigError, match=rf"dev\.jsonl: the metric.*{message}"):
        prepare(checkpoint, tmp_path, task, rows, rows, setting)


@pytest.mark.parametrize(
    ("task", "setting", "train", "dev"),
    [
        *((task, "task.metric=spearman", PLAIN, SCORED) for task in (*EMBEDDERS, "ranking")),
        ("late-interaction", "selection.metric=pearson", PLAIN, SCORED),
        ("embedding", "task.metric=mrr", VECTORS, PLAIN),
        ("embedding", "selection.metric=mrr", VECTORS, PLAIN),
        ("ranking", "task.metric=map", SCORED, LISTS),
        ("regression", "selection.metric=mse", SCORED, SCORED[:1]),
    ],
)
def test_rows_of_another_kind_are_scored_by_their_own_metric(
    checkpoint: Path, tmp_path: Path, task: str, setting: str, train: Rows, dev: Rows
) -> None:
    if task == "ranking" and train is PLAIN:
        train = LISTS
    data = prepare(checkpoint, tmp_path, task, train, dev, setting)
    assert data.dev is not None
    assert setting.partition("=")[2] in data.task.score_names(data.dev.examples)


def test_unlabelled_training_rows_are_refused_by_their_place(
    checkpoint: Path, tmp_path: Path
) -> None:
    for task, rows, message in (
        ("sequence-classification", [*TEXTS, {"text": "not"}], "line 3: .* task.label"),
        ("late-interaction", [*PLAIN, VECTORS[0]], "line 3: .* task.document"),
        ("multiple-choice", [{"context": "a", "endings": ["b", "c"]}], "line 1: .* task.label"),
        ("token-classification", [{"words": ["a"]}], "line 1: .* task.tags"),
        ("span-classification", [{"words": ["a"]}], "line 1: .* task.tags or task.entities"),
        ("question-answering", [{"question": "a", "context": "b"}], "line 1: .* task.answers"),
    ):
        with pytest.raises(RowError, match=rf"train\.jsonl, {message}.*the row has"):
            prepare(checkpoint, tmp_path, task, rows, PLAIN)
