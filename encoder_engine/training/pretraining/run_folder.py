"""Records the recipe and the corpus digest in a run's folder, and refuses to resume with others."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from encoder_engine.data.shards import MANIFEST
from encoder_engine.errors import ResumeError
from encoder_engine.files import file_sha256, read_text, write_atomically
from encoder_engine.json_values import read_value
from encoder_engine.records import describe_changes, refuse_changes
from encoder_engine.training.pretraining.recipe_reader import recipe_to_values

if TYPE_CHECKING:
    from pathlib import Path

    from encoder_engine.data.shards import Corpus
    from encoder_engine.training.recipe import TrainingRecipe

__all__ = ["begin", "compare"]

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


def begin(directory: Path, recipe: TrainingRecipe, corpus: Corpus) -> None:
    """Write the recipe and the corpus digest into a folder that holds no checkpoint yet."""
    digest = file_sha256(corpus.directory / MANIFEST)
    write_atomically(directory / CORPUS, f"{digest}  {MANIFEST}\n".encode())
    values = json.dumps(recipe_to_values(recipe), indent=1) + "\n"
    write_atomically(directory / RECIPE, values.encode())


def compare(directory: Path, recipe: TrainingRecipe, corpus: Corpus) -> None:
    """Raise :class:`ResumeError` if the folder was begun with another recipe or corpus."""
    values = json.loads(json.dumps(recipe_to_values(recipe)))
    digest = file_sha256(corpus.directory / MANIFEST)
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
        changes.append(f"{corpus.directory} holds another corpus")
    advice = "name another folder, or resume with its own recipe and corpus"
    refuse_changes(directory, changes, advice + _further(directory, changes))


def _further(directory: Path, changes: list[str]) -> str:
    """Return advice for training a finished run further, if only ``run.steps`` changed."""
    if len(changes) != 1 or not changes[0].startswith("run.steps "):
        return ""
    return f"; to train it further, start a new run from the model {directory / 'model'}"
