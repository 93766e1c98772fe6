"""Choices and rankings: lists of any length are learned, and saved as others load them."""

from __future__ import annotations

import copy
import json
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch

import encoder_engine as ee
from encoder_engine.errors import InputError, RowError
from encoder_engine.finetuning.data import prepare_data
from encoder_engine.finetuning.model_builder import build_task_model
from encoder_engine.finetuning.recipe_reader import find_recipe
from encoder_engine.finetuning.run import FineTuner
from encoder_engine.inputs.records import Record
from encoder_engine.ops.testing import assert_within_budget
from encoder_engine.prediction.predictor import Predictor
from encoder_engine.tasks.multiple_choice import MultipleChoiceTask
from encoder_engine.tasks.ranking import RankingTask

if TYPE_CHECKING:
    from pathlib import Path

    from encoder_engine.finetuning.recipe import FineTuningRecipe

pytestmark = pytest.mark.filterwarnings("ignore::encoder_engine.errors.SuspiciousDataWarning")

# Most terms of a sum: the inputs of the feed-forward layer's second matrix.
TERMS = 64
WORDS = ["film", "plot", "a", "the", "very", "not"]


def draw_choices(num_rows: int) -> list[dict[str, Any]]:
    """Draw questions of 2 to 4 endings; the right one has the word good."""
    rng = np.random.default_rng(0)
    rows = []
    for _ in range(num_rows):
        endings = [" ".join(rng.choice(WORDS, size=3)) for _ in range(int(rng.integers(2, 5)))]
        label = int(rng.integers(len(endings)))
        endings[label] += " good"
        context = " ".join(rng.choice(WORDS, size=4))
        rows.append({"context": context, "endings": endings, "label": label})
    return rows


def draw_rankings(num_rows: int) -> list[dict[str, Any]]:
    """Draw queries whose document has the word good; the 1 to 3 negatives have bad."""
    rng = np.random.default_rng(1)

    def draw(word: str) -> str:
        return " ".join([*rng.choice(WORDS, size=3), word])

    return [
        {
            "query": draw("the"),
            "positive": draw("good"),
            "negatives": [draw("bad") for _ in range(int(rng.integers(1, 4)))],
        }
        for _ in range(num_rows)
    ]


def make_recipe(
    checkpoint: Path, folder: Path, task: str, rows: list[dict[str, Any]], *settings: str
) -> FineTuningRecipe:
    files, cut = [], len(rows) * 3 // 4
    for name, part in (("train", rows[:cut]), ("dev", rows[cut:])):
        path = folder / f"{name}.jsonl"
        path.write_text("".join(json.dumps(row) + "\n" for row in part))
        files.append([str(path)])
    usual = ["run.device=cpu", "run.epochs=6", "batch.examples=8", "optimizer.learning_rate=5e-3"]
    return find_recipe(
        task,
        [*usual, "report.samples=0", "model.dropout=0", *settings],
        checkpoint=str(checkpoint),
        train=files[0],
        dev=files[1],
    )


def test_choices_are_those_of_transformers(checkpoint: Path, tmp_path: Path) -> None:
    library = pytest.importorskip("transformers")
    recipe = make_recipe(checkpoint, tmp_path, "multiple-choice", draw_choices(80))
    run = FineTuner(recipe, tmp_path / "run").finetune()
    assert run.scores["accuracy"] > 90.0
    chooser = ee.Chooser.from_pretrained(run.model, "cpu")
    endings = ["the film", "plot good", "very not a"]
    [found] = chooser.predict([("a film", endings)])
    assert found.choice == 1
    theirs = library.AutoModelForMultipleChoice.from_pretrained(run.model).eval()
    exact = copy.deepcopy(theirs).double()
    eager, truth = [], []
    for ending in endings:
        encoding = chooser.tokenizer.encode_batch(["a film"], [ending])
        columns = {"input_ids": encoding.ids, "token_type_ids": encoding.type_ids}
        given = {n: torch.from_numpy(v.astype(np.int64))[None, None] for n, v in columns.items()}
        with torch.no_grad():
            eager.append(theirs(**given).logits[0, 0])
            truth.append(exact(**given).logits[0, 0])
    ours = torch.from_numpy(found.logits).float()
    assert_within_budget(ours, torch.stack(eager), torch.stack(truth), terms=TERMS)
    shares = torch.from_numpy(found.logits).softmax(0)
    assert_within_budget(torch.from_numpy(found.probabilities), shares, shares, terms=len(shares))
    with pytest.raises(InputError, match="a list of two or more endings"):
        chooser.predict([("a film", ["one"])])


def test_the_loss_of_choices_is_a_softmax_over_each_question(
    checkpoint: Path, tmp_path: Path
) -> None:
    recipe = make_recipe(checkpoint, tmp_path, "multiple-choice", draw_choices(12))
    data = prepare_data(recipe)
    model = build_task_model(
        data.checkpoint, data.directory, data.task, recipe.model, recipe.optimizer, seed=0
    )
    inputs = data.task.collate(data.train_items)
    sizes = np.diff(data.train_items.offsets).tolist()

    def summed(scores: torch.Tensor) -> torch.Tensor:
        both = zip(torch.split(scores, sizes), data.train.examples, strict=True)
        return torch.stack([-part.log_softmax(0)[one.gold] for part, one in both]).sum()

    [loss] = model.eval()(inputs).values()
    eager = summed(torch.from_numpy(model.outputs(inputs)["scores"]))
    truth = summed(torch.from_numpy(model.double().outputs(inputs)["scores"]))
    assert_within_budget(loss.total.detach(), eager, truth, terms=sum(sizes))
    assert loss.num_terms == len(data.train)


@pytest.mark.slow
@pytest.mark.parametrize("loss", ["binary", "listwise"])
def test_rankings_are_learned(checkpoint: Path, tmp_path: Path, loss: str) -> None:
    settings = [f"task.loss={loss}"]
    recipe = make_recipe(checkpoint, tmp_path, "ranking", draw_rankings(64), *settings)
    run = FineTuner(recipe, tmp_path / "run").finetune()
    assert run.scores["mrr"] > 90.0
    predictor = Predictor.from_pretrained(run.model, "cpu", engine="torch")
    examples = [predictor.task.read(Record(row)) for row in draw_rankings(64)[48:]]
    found = predictor.predict_examples(examples)
    assert predictor.task.score(examples, found) == run.scores
    # The engine's own ranker reads the directory.
    ranker = ee.embedding.Ranker.from_pretrained(run.model)
    pairs = [(examples[0].query, document) for document in examples[0].documents]
    scores = torch.from_numpy(ranker.predict(pairs, activation="identity"))
    predictor.model.double()
    [exact, *_] = predictor.predict_examples(examples)
    eager, truth = (torch.from_numpy(one.scores) for one in (found[0], exact))
    assert_within_budget(scores, eager.to(scores.dtype), truth, terms=TERMS)


def test_rows_of_one_query_are_resampled_together() -> None:
    task = RankingTask()
    rows = [
        {"query": query, "positive": f"good {number}", "negatives": ["bad"]}
        for number, query in enumerate(("one", "two", "one", "three", "two"))
    ]
    examples = [task.read(Record(row)) for row in rows]
    assert task.groups(examples).tolist() == [0, 1, 0, 2, 1]
    pairs = [{"query": "one", "positive": f"text {n}", "score": n} for n in (1, 2)]
    scored = [task.read(Record(row)) for row in pairs]
    assert task.groups(scored).tolist() == [0, 1]


def test_bad_rows_are_refused() -> None:
    task = MultipleChoiceTask()
    row: dict[str, Any] = {"context": "a", "endings": ["b", "c"], "label": 2}
    with pytest.raises(RowError, match="label is 2; it must be the number of an ending, 0 to 1"):
        task.read(Record(row))
    with pytest.raises(RowError, match="there are 1 endings"):
        task.read(Record(row | {"endings": ["b"]}))
    ranking = RankingTask()
    with pytest.raises(RowError, match="names no document"):
        ranking.read(Record({"query": "a"}))
    pair = ranking.read(Record({"query": "a", "positive": "b"}))
    with pytest.raises(InputError, match="have one label"):
        ranking.fit([pair])
    scored = [ranking.read(Record({"query": "a", "positive": "b", "score": s})) for s in (1, 5)]
    with pytest.raises(InputError, match="reach from 1 to 5"):
        ranking.fit(scored)
    swag = find_recipe("swag").task
    values = {f"ending{n}": f"e{n}" for n in range(4)}
    example = swag.read(Record({"sent1": "He sat.", "sent2": "He", "label": "3", **values}))
    assert example.endings[3] == "He e3"
    assert (example.gold, example.context) == (3, "He sat.")
