"""Small runs over drawn text."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch

from encoder_engine.data.shards import Document
from encoder_engine.training import (
    BatchRecipe,
    DataRecipe,
    ModelRecipe,
    OptimizerRecipe,
    RunRecipe,
    Trainer,
    TrainingRecipe,
)
from encoder_engine.training.pretraining.recipe_reader import recipe_from_values, recipe_to_values
from encoder_engine.training.recipe_values import set_values
from tests.data.corpora import SIZE, draw_documents, write

if TYPE_CHECKING:
    from encoder_engine.training.course import StepBatches
    from encoder_engine.training.loop import Loop
    from encoder_engine.training.pretraining.trainer import Progress

CONFIG: dict[str, Any] = {
    "model_type": "bert",
    "hidden_size": 16,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "intermediate_size": 24,
    "max_position_embeddings": 32,
    "type_vocab_size": 2,
    "hidden_dropout_prob": 0.1,
    "attention_probs_dropout_prob": 0.1,
}


def take_step(loop: Loop, batches: StepBatches, step: int, rate: float) -> dict[str, Any]:
    """Take one step, and return its losses and norm."""
    return loop._launch(batches, step, rate).read(loop.model.weights)


class StoppedError(Exception):
    """A run is interrupted."""


def draw_corpus(directory: Path, seed: int = 1) -> Path:
    """Write a corpus of two shards, whose tokens are not equally frequent."""
    directory.mkdir()
    shards = [(120, seed), (100, seed + 1)]
    write(directory, *(_skewed(draw_documents(number, seed=s)) for number, s in shards))
    return directory


def _skewed(documents: list[Document]) -> list[Document]:
    def skew(tokens: Any) -> Any:
        return (10 + (tokens - 10) ** 3 / (SIZE - 10) ** 2).astype(np.int64)

    return [Document([skew(s) for s in d.sentences], d.language) for d in documents]


def small_recipe(corpus: Path, *settings: str, **others: Any) -> TrainingRecipe:
    """Twelve steps of three micro-batches each, but for ``settings``."""
    recipe = TrainingRecipe(
        model=ModelRecipe(config=CONFIG),
        data=DataRecipe(corpus=str(corpus), max_length=32, held_out=0.05),
        optimizer=OptimizerRecipe(learning_rate=1e-2),
        batch=BatchRecipe(tokens=384, micro_tokens=128),
        run=RunRecipe(steps=12, evaluate_every=5, checkpoint_every=4, deterministic=True),
    )
    return recipe_from_values(set_values(recipe_to_values(replace(recipe, **others)), settings))


def run(corpus: Path, folder: Path, *settings: str, stop_at: int | None = None) -> Trainer:
    """Run, perhaps up to a step."""

    def watch(progress: Progress) -> None:
        if progress.step == stop_at:
            raise StoppedError

    trainer = Trainer(small_recipe(corpus, *settings), folder)
    if stop_at is None:
        trainer.run()
    else:
        with pytest.raises(StoppedError):
            trainer.run(watch)
    return trainer


def as_float64(tensor: torch.Tensor) -> torch.Tensor:
    """Stand for Tensor.bfloat16, in which Muon's products hide what another order of sums does."""
    return tensor.to(torch.float64, copy=True)


if __name__ == "__main__":
    # python -m tests.training.runs CORPUS FOLDER SETTING...: a run in processes of its own.
    torch.Tensor.bfloat16 = as_float64  # type: ignore[assignment]
    trainer = Trainer(small_recipe(Path(sys.argv[1]), *sys.argv[3:]), Path(sys.argv[2]))
    trainer.run()
    trainer.world.leave()
