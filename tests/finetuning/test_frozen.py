"""A frozen encoder is computed once: the same losses as when it is computed every epoch."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch

from encoder_engine.errors import ConfigError, ResumeError
from encoder_engine.finetuning.recipe import StepRecipe
from encoder_engine.finetuning.recipe_reader import find_recipe
from encoder_engine.finetuning.run import FineTuner
from encoder_engine.inputs.tables import read_table
from encoder_engine.models import Encoder
from encoder_engine.ops.testing import floor
from encoder_engine.prediction.predictor import Predictor
from encoder_engine.tasks.question_answering import QuestionAnsweringTask
from tests.finetuning.task_rows import write_masked_lm, write_task_rows

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = [
    pytest.mark.filterwarnings("ignore::encoder_engine.errors.SuspiciousDataWarning"),
    pytest.mark.filterwarnings("ignore::encoder_engine.errors.TruncationWarning"),
]

CASES = [
    ("sequence-classification", "task.calibrate=false"),
    ("regression", "task.metric=pearson"),
    ("token-classification", "task.decoding=argmax"),
    ("token-classification", "task.decoding=crf"),
]
CASES_OF_OTHER_HEADS = [
    ("span-classification", "task.hidden=16"),
    ("question-answering", "task.num_best=5"),
    ("ranking", "task.loss=listwise"),
    ("late-interaction", "task.dimension=8"),
    ("sparse", "task.query_flops=1e-4"),
]
# Outputs of every token, and of a text, as of those above.
ALIKE = [
    ("token-classification", "task.subwords=all"),
    ("multiple-choice", "task.label=label"),
]
ROWS, EPOCHS, LENGTH, WIDTH = 40, 4, 12, 32


def test_outputs_beyond_the_memory_are_refused_with_their_size(
    checkpoint: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        QuestionAnsweringTask, "feature_offsets", lambda _, items: items.token_offsets << 40
    )
    path = write_task_rows(tmp_path / "rows.jsonl", "question-answering", num_rows=2, seed=0)
    recipe = find_recipe(
        "question-answering",
        ["model.train=head", "run.device=cpu"],
        checkpoint=str(checkpoint),
        train=[str(path)],
    )
    with pytest.raises(ConfigError, match=r"GiB \(\d+ rows of 32\).*model\.cache_frozen=false"):
        FineTuner(recipe, tmp_path / "run").finetune()


def rounding(numbers: list[float]) -> float:
    """Return the error of rounding in float64: a loss follows from sums over all tokens so far."""
    size = max(map(abs, numbers))
    terms = EPOCHS * ROWS * LENGTH * WIDTH
    return 2 * floor(torch.tensor(size), torch.float64, terms=terms, size=size)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("task", "setting"),
    [
        *CASES,
        *(pytest.param(*case, marks=pytest.mark.slow) for case in CASES_OF_OTHER_HEADS),
        *(pytest.param(*case, marks=pytest.mark.exhaustive) for case in ALIKE),
    ],
)
def test_cached_outputs_give_the_same_losses(
    checkpoint: Path,
    tmp_path: Path,
    task: str,
    setting: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    path = write_task_rows(tmp_path / "rows.jsonl", task, num_rows=ROWS, seed=0)
    model = write_masked_lm(checkpoint) if task == "sparse" else checkpoint
    calls = 0
    forward = Encoder.forward

    def counting(self: Encoder, *arguments: Any, **options: Any) -> Any:
        nonlocal calls
        calls += 1
        return forward(self, *arguments, **options)

    monkeypatch.setattr(Encoder, "forward", counting)
    losses, scores, counts = [], [], []
    for cached in ("true", "false"):
        settings = ["model.train=head", f"model.cache_frozen={cached}", f"run.epochs={EPOCHS}"]
        settings += ["run.device=cpu", "batch.examples=8", "report.samples=0", setting]
        settings += ["optimizer.learning_rate=1e-2", "run.precision=float64"]
        settings.append(f"data.max_length={LENGTH}")
        recipe = find_recipe(
            task, settings, checkpoint=str(model), train=[str(path)], dev=[str(path)]
        )
        calls = 0
        run = FineTuner(recipe, tmp_path / cached).finetune()
        counts.append(calls)
        lines = (tmp_path / cached / "log.jsonl").read_text().splitlines()
        losses.append([json.loads(line)["loss"] for line in lines])
        scores.append(run.scores)
    np.testing.assert_allclose(losses[0], losses[1], rtol=0, atol=rounding(losses[1]))
    # A loaded model computes its encoder, and scores as the run did from its cached outputs.
    predictor = Predictor.from_pretrained(tmp_path / "true", "cpu", "float64")
    examples = [predictor.task.read(record) for record in read_table(path)]
    predictions = predictor.predict_examples(examples)
    found = predictor.task.score(examples, predictions)
    assert found == scores[0]
    assert predictor.task.score_names(examples) == tuple(found)
    assert scores[0].keys() == scores[1].keys()
    for name, score in scores[1].items():
        size = score
        if name in ("pearson", "spearman"):
            # A correlation divides what is predicted by its spread.
            predicted = np.array([prediction.score for prediction in predictions])
            size = 100.0 * np.abs(predicted).max() / predicted.std()
        assert abs(scores[0][name] - score) <= rounding([size]), name
    assert counts[0] == 2
    assert counts[1] > 20
    # A run that is refused computes nothing, and a finished one its dev rows alone.
    calls = 0
    again = FineTuner(replace(recipe, batch=StepRecipe(examples=4)), tmp_path / "true")
    with pytest.raises(ResumeError, match=r"batch\.examples"):
        again.finetune()
    assert calls == 0
    cached_recipe = replace(recipe, model=replace(recipe.model, cache_frozen=True))
    assert FineTuner(cached_recipe, tmp_path / "true").finetune().scores == scores[0]
    assert calls == 1
