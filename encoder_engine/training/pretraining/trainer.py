"""Pretrains an encoder: gives the training loop a corpus, objectives, and a model."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING

from encoder_engine.data.loader import Loader
from encoder_engine.data.pairs import Pairs
from encoder_engine.data.shards import MANIFEST
from encoder_engine.errors import ResumeError
from encoder_engine.files import file_sha256, read_text, write_atomically
from encoder_engine.json_values import read_value
from encoder_engine.records import describe_changes, refuse_changes
from encoder_engine.training.course import Course
from encoder_engine.training.loop import Loop, Progress
from encoder_engine.training.pretraining.batch_stream import BatchStream
from encoder_engine.training.pretraining.evaluation import Evaluation
from encoder_engine.training.pretraining.model_builder import (
    build_model,
    build_objectives,
    build_text,
    save_model,
)
from encoder_engine.training.pretraining.plausibility import warn_of_divergence, warn_of_repetition
from encoder_engine.training.pretraining.recipe_reader import recipe_to_values

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from encoder_engine.data.samples import Samples
    from encoder_engine.models.training_model import TrainingModel
    from encoder_engine.objectives.objective import Objective
    from encoder_engine.training.pretraining.model_builder import Text
    from encoder_engine.training.recipe import (
        RunRecipe,
        TrainingRecipe,
    )
    from encoder_engine.training.world import World

__all__ = ["Pretraining", "Progress", "Trainer"]

RECIPE, CORPUS = "recipe.json", "corpus.sha256"
# Settings that may differ when a run resumes: they do not change the losses. A corpus may have
# moved; its manifest's digest is compared.
FREE = {
    "data.corpus",
    "data.workers",
    "run.log_every",
    "run.peak_tflops",
    "run.checkpoint_every",
    "run.keep_last",
    "run.keep_every",
    "run.trackers",
    "run.device",
    "run.recompute",
    "run.sharding",
}


class Trainer(Loop):
    """Pretrains a model by a recipe, in a folder from which an interrupted run resumes.

    The folder gets ``recipe.json``, ``corpus.sha256``, ``log.jsonl``, ``speed.jsonl``,
    ``checkpoints/`` and, at the end, ``curves.svg`` and ``model/``.
    """

    course: Pretraining

    def __init__(
        self, recipe: TrainingRecipe, directory: Path, *, world: World | None = None
    ) -> None:
        super().__init__(Pretraining(recipe), directory, world=world)

    @property
    def recipe(self) -> TrainingRecipe:
        """All settings of the pretraining run."""
        return self.course.recipe

    @property
    def text(self) -> Text:
        """The corpus, with its training sequences and the sequences held out for evaluation."""
        return self.course.text

    @property
    def objectives(self) -> tuple[Objective, ...]:
        """The training objectives of the encoder or, with ELECTRA, of its generator."""
        return self.course.objectives


class Pretraining(Course):
    """The :class:`Course` of pretraining: a corpus, objectives and a model for the loop."""

    recipe: TrainingRecipe
    text: Text
    objectives: tuple[Objective, ...]

    def __init__(self, recipe: TrainingRecipe) -> None:
        self.recipe = recipe

    @property
    def run(self) -> RunRecipe:
        """The settings of the run: length, precision, devices, intervals and checkpoints."""
        return self.recipe.run

    @property
    def max_length(self) -> int:
        """The most tokens of a training sequence."""
        return self.recipe.data.max_length

    def read(self, *, verify: bool) -> None:
        """Open the corpus, cut it into sequences, and make the objectives."""
        recipe = self.recipe
        self.text = build_text(recipe.data, seed=recipe.run.seed, verify=verify)
        self.objectives = build_objectives(recipe.objectives, recipe.data, self.text.corpus)

    def warn(self) -> None:
        """Warn of a corpus that the run repeats too often."""
        warn_of_repetition(self.recipe, self.text)

    def build_model(self) -> TrainingModel:
        """Make the model to pretrain: random weights, or those of the recipe's checkpoint."""
        return build_model(self.recipe, self.text.corpus, self.objectives)

    def _loader(self, samples: Samples | Pairs, *, seed: int, alpha: float | None) -> Loader:
        tokens = self.recipe.batch.micro_tokens
        return Loader(samples=samples, batch_tokens=tokens, seed=seed, alpha=alpha)

    def batch_stream(self, world: World) -> BatchStream:
        """Return the stream that yields this process's masked micro-batches, step by step."""
        run, data = self.recipe.run, self.recipe.data
        return BatchStream(
            self._loader(self.text.training, seed=run.seed, alpha=data.alpha),
            self.objectives,
            world,
            seed=run.seed,
            # While one thread compiles, torch.compiler.is_compiling() is true in all of them.
            workers=0 if run.compile else data.workers,
        )

    def evaluation(self, names: Sequence[str], world: World) -> Evaluation | None:
        """Return the function that scores a model on held-out text; None: none is held out.

        ``names``: the names of the model's losses, of which it computes the means.
        """
        held_out = self.text.held_out
        if not len(held_out):
            return None
        # Seed 0: the same batches, masks and pairs for every run of the corpus.
        if isinstance(held_out, Pairs):
            held_out = replace(held_out, seed=0)
        loader = self._loader(held_out, seed=0, alpha=None)
        tokens = self.recipe.run.evaluation_tokens
        return Evaluation(loader, self.objectives, names, world, num_tokens=tokens)

    def begin(self, directory: Path) -> None:
        """Write the recipe and a digest of the corpus into the folder of a new run."""
        digest = file_sha256(self.text.corpus.directory / MANIFEST)
        write_atomically(directory / CORPUS, f"{digest}  {MANIFEST}\n".encode())
        values = json.dumps(recipe_to_values(self.recipe), indent=1) + "\n"
        write_atomically(directory / RECIPE, values.encode())

    def compare(self, directory: Path) -> None:
        """Raise :class:`ResumeError` if the run's folder records another recipe or corpus."""
        values = json.loads(json.dumps(recipe_to_values(self.recipe)))
        digest = file_sha256(self.text.corpus.directory / MANIFEST)
        for name in (RECIPE, CORPUS):
            if not (directory / name).exists():
                raise ResumeError(
                    f"{directory} has checkpoints or a model, and no {name}, so their recipe and "
                    "corpus are unknown; name another folder"
                )
        recorded = read_value(directory / RECIPE, ResumeError).object()
        changes = describe_changes(
            recorded, values, lambda change: None if change.name in FREE else str(change)
        )
        if read_text(directory / CORPUS, ResumeError).split()[:1] != [digest]:
            changes.append(f"{self.text.corpus.directory} holds another corpus")
        advice = "name another folder, or resume with its own recipe and corpus"
        refuse_changes(directory, changes, advice + _further(directory, changes))

    def num_micro_batches(self, step: int) -> int:
        """Return the number of micro-batches of a step, over all processes, from step 0 on."""
        return self.recipe.batch.num_micro_batches(step, self.recipe.run.steps)

    def review(self, scores: dict[str, float]) -> None:
        """Warn of a loss that is far worse than uniform guessing."""
        warn_of_divergence(scores, self.text.corpus.vocabulary.size)

    def save_model(self, model: TrainingModel, directory: Path) -> None:
        """Write the model in transformers' layout, and the corpus' tokenizer."""
        save_model(model, self.recipe.model, self.text.corpus, directory)


def _further(directory: Path, changes: list[str]) -> str:
    """Return the end of an error message: how to train a finished run longer.

    "" unless ``run.steps`` is the only changed setting.
    """
    if len(changes) != 1 or not changes[0].startswith("run.steps "):
        return ""
    return f"; to train it further, start a new run from the model {directory / 'model'}"
