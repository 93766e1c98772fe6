"""A run's folder is its recipe's and its corpus': noted when it is begun, compared later."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from encoder_engine.data.shards import MANIFEST
from encoder_engine.errors import ResumeError
from encoder_engine.files import file_sha256, read_json, read_text, write_atomically
from encoder_engine.records import differences
from encoder_engine.training.recipe_reader import recipe_to_values

if TYPE_CHECKING:
    from pathlib import Path

    from encoder_engine.data.shards import Corpus
    from encoder_engine.training.recipe import Recipe

__all__ = ["begin", "compare"]

RECIPE, CORPUS = "recipe.json", "corpus.sha256"
# What may differ when a run goes on: it changes neither the losses nor what they are of. A corpus
# may lie elsewhere; that it is the same is compared by its manifest.
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


def begin(directory: Path, recipe: Recipe, corpus: Corpus) -> None:
    """Note what a folder is begun with, in place of what was noted and came to nothing."""
    digest = file_sha256(corpus.directory / MANIFEST)
    write_atomically(directory / CORPUS, f"{digest}  {MANIFEST}\n".encode())
    noted = json.dumps(recipe_to_values(recipe), indent=1) + "\n"
    write_atomically(directory / RECIPE, noted.encode())


def compare(directory: Path, recipe: Recipe, corpus: Corpus) -> None:
    """Raise :class:`ResumeError` where a folder was begun with something else."""
    values = json.loads(json.dumps(recipe_to_values(recipe)))
    digest = file_sha256(corpus.directory / MANIFEST)
    for name in (RECIPE, CORPUS):
        if not (directory / name).exists():
            raise ResumeError(
                f"{directory} has checkpoints or a model, and no {name} that says what of; an "
                "earlier version may have begun it: name another folder"
            )
    found = differences(read_json(directory / RECIPE, ResumeError), values)
    changes = [str(change) for change in found if change.name not in FREE]
    if read_text(directory / CORPUS, ResumeError).split()[:1] != [digest]:
        changes.append(f"{corpus.directory} holds another corpus")
    if changes:
        raise ResumeError(
            f"{directory} was begun by another recipe: {'; '.join(changes)}; name another "
            f"folder, or go on with what it was begun with{_further(directory, changes)}",
            changes=changes,
        )


def _further(directory: Path, changes: list[str]) -> str:
    """Say how a finished run is trained further, where only its number of steps was changed."""
    if len(changes) > 1 or not changes[0].startswith("run.steps "):
        return ""
    return f"; to train a finished model further: --checkpoint {directory / 'model'}, a new folder"
