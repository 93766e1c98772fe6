"""Gives the training loop what it fine-tunes: labelled rows, a task, and a checkpoint."""

from __future__ import annotations

import hashlib
import json
from functools import cache, cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from encoder_engine.errors import ResumeError
from encoder_engine.families.config import read_config
from encoder_engine.files import write_atomically
from encoder_engine.finetuning.batch_stream import ItemStream
from encoder_engine.finetuning.data import prepare_data
from encoder_engine.finetuning.evaluation import DevEvaluation
from encoder_engine.finetuning.frozen import with_features
from encoder_engine.finetuning.model_builder import build_task_model
from encoder_engine.finetuning.recipe import recipe_to_values
from encoder_engine.folders import replacing_folder
from encoder_engine.json_values import read_value
from encoder_engine.models.lora.adapters import adapted_layers, merged_adapters
from encoder_engine.models.lora.saving import save_adapter
from encoder_engine.records import describe_changes, differences, refuse_changes
from encoder_engine.tasks.models.task_model import TaskModel
from encoder_engine.tasks.registry import task_values
from encoder_engine.tasks.task_folder import SavedTask, save_task
from encoder_engine.text.fingerprint import tokenizer_fingerprint
from encoder_engine.training.best import Best
from encoder_engine.training.course import Course

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from torch import nn

    from encoder_engine.finetuning.data import TaskData
    from encoder_engine.finetuning.evaluation import Evaluated
    from encoder_engine.finetuning.recipe import FineTuningRecipe
    from encoder_engine.models.training_model import TrainingModel
    from encoder_engine.tasks.items import Items
    from encoder_engine.training.recipe import RunRecipe
    from encoder_engine.training.world import World

__all__ = ["FineTuning"]

RECIPE, DATA, MODEL, ADAPTER = "recipe.json", "data.json", "model", "adapter"
# Settings that may differ when a run resumes: they do not change the losses. Files and checkpoints
# may have moved; the rows, weights, config, tokenizer and fitted task are compared.
FREE = {
    "data.train",
    "data.dev",
    "model.checkpoint",
    "run.log_every",
    "run.checkpoint_every",
    "run.keep_last",
    "run.trackers",
    "run.device",
    "run.recompute",
    "run.sharding",
    "report.samples",
    "report.level",
}


class FineTuning(Course):
    """The :class:`Course` of fine-tuning: trains a checkpoint on labelled rows by a recipe.

    ``data``: tokenized data shared with runs of other seeds; None: :meth:`read` reads it.
    """

    recipe: FineTuningRecipe
    evaluated: Evaluated | None = None

    def __init__(self, recipe: FineTuningRecipe, data: TaskData | None = None) -> None:
        self.recipe = recipe
        self._data = data

    @property
    def data(self) -> TaskData:
        """The tokenized rows of the run; :meth:`read` must have been called."""
        assert self._data is not None
        return self._data

    @property
    def run(self) -> RunRecipe:
        """The settings of the run: length, precision, devices, intervals and checkpoints."""
        if self._data is None:
            # The loop asks for the device before it has the data read.
            return self.recipe.run.for_steps(1)
        examples = self.recipe.batch.examples
        return self.recipe.run.for_steps(-(-len(self.data.train_items) // examples))

    @property
    def max_length(self) -> int:
        """The most tokens that the model reads at once: of a text, or of a window of it."""
        return self.data.windows.max_length

    def read(self, *, verify: bool) -> None:
        """Read the labelled files, fit the task, and tokenize, unless shared data were given.

        ``verify`` has no effect.
        """
        del verify
        if self._data is None:
            self._data = prepare_data(self.recipe)

    def warn(self) -> None:
        """Warn of labelled rows that make scores unreliable, missing dev rows and cut texts."""
        self.data.warn()

    def build_model(self) -> TrainingModel:
        """Load the checkpoint's encoder, and add the task's head."""
        recipe = self.recipe
        self._model = build_task_model(
            self.data.checkpoint,
            self.data.directory,
            self.data.task,
            recipe.model,
            recipe.optimizer,
            seed=recipe.run.seed,
        )
        return self._model

    def batch_stream(self, world: World) -> ItemStream:
        """Return the stream that yields this process's micro-batches, training step by step."""
        recipe, items = self.recipe, self._featured(self.data.train_items)
        return ItemStream(self.data, items, recipe.batch, world, seed=recipe.run.seed)

    def _featured(self, items: Items) -> Callable[[], Items]:
        """Return a function that returns the items, with a frozen encoder's outputs as a column.

        The outputs are computed at the function's first call, so not for a run that is refused or
        has no step left. Without a frozen encoder, without ``cache_frozen`` and with ``sharding``
        the items are returned as they are.
        """
        recipe = self.recipe
        if not recipe.model.cache_frozen or recipe.run.sharding != "none":
            return lambda: items
        tokens = recipe.batch.micro_tokens
        return cache(
            partial(with_features, items, self.data.task, self._model, batch_tokens=tokens)
        )

    def evaluation(self, names: Sequence[str], world: World) -> DevEvaluation | None:
        """Return the function that scores a model on the dev rows; None: there are none."""
        del names
        if self.data.dev_items is None:
            self._evaluation = None
        else:
            items, tokens = self._featured(self.data.dev_items), self.recipe.batch.micro_tokens
            self._evaluation = DevEvaluation(self.data, items, world, batch_tokens=tokens)
        return self._evaluation

    def best(self, model: TrainingModel) -> Best | None:
        """Return the object that keeps the best weights; None: there are no dev rows."""
        if self.data.dev is None:
            return None
        return Best(model, self.recipe.selection, self.data.task.main_score)

    @cached_property
    def _contents(self) -> dict[str, Any]:
        """Return the content of ``data.json``, by which a resumed run is compared.

        It has digests of rows, checkpoint and further models, and the fitted task, as JSON values.
        """
        dev = None if self.data.dev is None else self.data.dev.values()
        config = json.dumps(read_config(self.data.directory), sort_keys=True).encode()
        checkpoint = {
            "weights": self._model.loaded_sha256,
            "config": hashlib.sha256(config).hexdigest(),
            "tokenizer": tokenizer_fingerprint(self.data.tokenizer),
        }
        task = self.data.task
        contents = {
            "train": self.data.train.values(),
            "dev": dev,
            "checkpoint": checkpoint,
            "models": task.digests(),
            "task": task_values(task),
        }
        found: dict[str, Any] = json.loads(json.dumps(contents))
        return found

    def begin(self, directory: Path) -> None:
        """Write the recipe, digests of rows and checkpoint, and the task into the run's folder."""
        for name, values in ((RECIPE, recipe_to_values(self.recipe)), (DATA, self._contents)):
            write_atomically(directory / name, (json.dumps(values, indent=1) + "\n").encode())

    def compare(self, directory: Path) -> None:
        """Raise :class:`ResumeError` if the folder records another recipe, checkpoint or rows.

        The settings that the task takes from its checkpoint are compared too.
        """
        for name in (RECIPE, DATA):
            if not (directory / name).exists():
                raise ResumeError(
                    f"{directory} has checkpoints or a model, and no {name}: its settings are "
                    "unknown; name another folder"
                )
        recorded, contents = read_value(directory / DATA, ResumeError).object(), self._contents
        if not contents.keys() <= recorded.keys():
            raise ResumeError(
                f"{directory} was begun by an earlier version, which recorded less of the "
                "checkpoint than is compared now; name another folder"
            )
        now = json.loads(json.dumps(recipe_to_values(self.recipe)))
        # The fitted task holds the recipe's settings, and the checkpoint's where those are unset.
        changes = describe_changes(
            read_value(directory / RECIPE, ResumeError).object() | {"task": recorded["task"]},
            now | {"task": contents["task"]},
            lambda change: None if change.name in FREE else str(change),
        )
        for name in ("train", "dev"):
            before = (recorded[name] or {}).get("sha256")
            if before != (contents[name] or {}).get("sha256"):
                changes.append(f"the {name} rows are others")
        for one in differences(recorded["checkpoint"], contents["checkpoint"]):
            changes.append(f"the checkpoint has another content: {one.name}")
        for one in differences(recorded["models"], contents["models"]):
            changes.append(f"the model of task.{one.name} has another content")
        refuse_changes(
            directory,
            changes,
            "name another folder, or resume with its own recipe, checkpoint and rows",
        )

    def num_micro_batches(self, step: int) -> int:
        """Return 1: the stream of :meth:`batch_stream` itself splits a step into micro-batches."""
        del step
        return 1

    def finish(self, model: nn.Module) -> None:
        """Score the exported weights on the dev rows, with decoding settings fitted on these."""
        if self._evaluation is not None:
            self.evaluated = self._evaluation.evaluate(model)

    def save_model(self, model: TrainingModel, directory: Path) -> None:
        """Write model, tokenizer and task; the directory appears once all files are written.

        Adapters are merged into the model. For the run's own ``model`` they are also written, as
        peft's files, into a directory beside it.
        """
        task = self.data.task if self.evaluated is None else self.evaluated.task
        assert isinstance(model, TaskModel)
        saved = SavedTask(task, self.data.windows, self.recipe.data.tables)
        # Adapters are written for the run's own model alone: another export must not replace a
        # folder that its caller has not named.
        if adapted_layers(model) and directory.name == MODEL:
            with replacing_folder(directory.parent / ADAPTER) as folder:
                save_adapter(
                    *(model.encoder, model.head_model, folder),
                    base=self._base,
                    others=model.own_modules,
                )
                self._save_settings(folder, saved._replace(base_sha256=model.encoder_sha256))
        with merged_adapters(model), replacing_folder(directory) as folder:
            model.save_pretrained(folder)
            self._save_settings(folder, saved)

    @property
    def _base(self) -> str:
        """The hub id of the checkpoint, or the absolute path of its encoder's folder."""
        data, given = self.data, self.recipe.model.checkpoint
        # A local checkpoint is named by its path, and so is a folder within a downloaded one, for
        # which the hub has no id.
        if Path(given) == data.checkpoint or data.directory != data.checkpoint:
            return str(data.directory.resolve())
        return given

    def _save_settings(self, folder: Path, saved: SavedTask) -> None:
        self.data.tokenizer.save(folder)
        save_task(folder, saved)
