"""A frozen encoder is computed once: the same losses as when it is computed every epoch."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from encoder_engine.finetuning.recipe_reader import find_recipe
from encoder_engine.finetuning.run import FineTuner
from encoder_engine.inputs.tables import read_table
from encoder_engine.models import Encoder
from encoder_engine.prediction.predictor import Predictor

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.filterwarnings("ignore::encoder_engine.errors.SuspiciousDataWarning")

WORDS = ["good", "bad", "film", "plot", "a", "the", "very", "not"]


def draw_rows(task: str) -> list[dict[str, Any]]:
    rng = np.random.default_rng(0)
    rows: list[dict[str, Any]] = []
    for number in range(40):
        words = rng.choice(WORDS, size=int(rng.integers(2, 20))).tolist()
        if task == "token-classification":
            rows.append({"words": words, "tags": ["B-X" if w == "film" else "O" for w in words]})
        else:
            rows.append({"text": " ".join(words), "label": number % 2, "score": number})
    return rows


@pytest.mark.parametrize(
    ("task", "setting"),
    [
        ("sequence-classification", "task.calibrate=false"),
        ("regression", "task.metric=pearson"),
        ("token-classification", "task.decoding=argmax"),
        ("token-classification", "task.decoding=crf"),
    ],
)
def test_cached_outputs_give_the_same_losses(
    checkpoint: Path,
    tmp_path: Path,
    task: str,
    setting: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    path = tmp_path / "rows.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in draw_rows(task)))
    calls = 0
    forward = Encoder.forward

    def counting(self: Encoder, *arguments: Any, **options: Any) -> Any:
        nonlocal calls
        calls += 1
        return forward(self, *arguments, **options)

    monkeypatch.setattr(Encoder, "forward", counting)
    losses, scores, counts = [], [], []
    for cached in ("true", "false"):
        settings = ["model.train=head", f"model.cache_frozen={cached}", "run.epochs=4", setting]
        settings += ["run.device=cpu", "batch.examples=8", "report.samples=0", "data.max_length=12"]
        settings += ["optimizer.learning_rate=1e-2"]
        recipe = find_recipe(
            task, settings, checkpoint=str(checkpoint), train=[str(path)], dev=[str(path)]
        )
        calls = 0
        run = FineTuner(recipe, tmp_path / cached).finetune()
        counts.append(calls)
        lines = (tmp_path / cached / "log.jsonl").read_text().splitlines()
        losses.append([json.loads(line)["loss"] for line in lines])
        scores.append(run.scores)
    np.testing.assert_allclose(losses[0], losses[1], rtol=1e-5)
    assert scores[0] == pytest.approx(scores[1], abs=1e-3)
    assert counts[0] == 2
    assert counts[1] > 20
    # A loaded model computes its encoder, and scores as the run did from its cached outputs.
    predictor = Predictor.from_pretrained(tmp_path / "true", "cpu")
    examples = [predictor.task.read(record) for record in read_table(path)]
    found = predictor.task.score(examples, predictor.predict_examples(examples))
    assert found == scores[0]
