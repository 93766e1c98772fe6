"""Runs fine-tuning: one recipe, one folder, and a report of the scores on the dev rows."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from encoder_engine.dataclass import dataclass
from encoder_engine.errors import OutputError
from encoder_engine.files import write_atomically
from encoder_engine.finetuning.course import FineTuning
from encoder_engine.finetuning.evaluation import score_intervals
from encoder_engine.finetuning.page import run_page
from encoder_engine.finetuning.recipe import recipe_to_values
from encoder_engine.finetuning.recipe_reader import find_recipe
from encoder_engine.json_values import read_value
from encoder_engine.metrics.intervals import Interval
from encoder_engine.training.log import read_log
from encoder_engine.training.loop import Loop
from encoder_engine.training.sweeps import summarise_seeds

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Sequence

    from encoder_engine.finetuning.data import TaskData
    from encoder_engine.finetuning.recipe import FineTuningRecipe
    from encoder_engine.training.loop import Progress
    from encoder_engine.training.world import World

__all__ = ["FineTuner", "Run", "finetune", "finetune_seeds"]

REPORT, PAGE = "report.json", "report.html"


@dataclass(frozen=True, kw_only=True)
class Run:
    """A finished fine-tuning run.

    ``directory``: the run's folder; ``model``: the directory of its model.
    ``scores``: the scores of the exported weights on the dev rows, which also selected these
    weights; empty without dev rows.
    ``intervals``: bootstrap intervals of the scores.
    ``degenerate``: why the model learned nothing, such as the same class for all rows; None: it
    learned something.
    """

    directory: Path
    scores: dict[str, float]
    intervals: dict[str, Interval]
    degenerate: str | None = None

    @property
    def model(self) -> Path:
        """The directory of the trained model."""
        return self.directory / "model"


class FineTuner(Loop):
    """Fine-tunes a model by a recipe, in a folder from which an interrupted run resumes.

    The folder gets ``recipe.json``, ``data.json``, ``log.jsonl``, ``speed.jsonl``,
    ``checkpoints/`` and, at the end, ``model/`` (and ``adapter/`` with LoRA), ``curves.svg``,
    ``report.json`` and ``report.html``.
    """

    course: FineTuning

    def __init__(
        self,
        recipe: FineTuningRecipe,
        directory: str | os.PathLike[str],
        *,
        data: TaskData | None = None,
        world: World | None = None,
    ) -> None:
        super().__init__(FineTuning(recipe, data), Path(directory), world=world)

    @property
    def recipe(self) -> FineTuningRecipe:
        """All settings of the fine-tuning run."""
        return self.course.recipe

    def finetune(self, watch: Callable[[Progress], None] | None = None) -> Run:
        """Train to the end, write the report, and return the finished run.

        ``watch``: called after every logged step.
        """
        self.run(watch)
        if self.world.is_first:
            self._write_report()
        self.world.wait()
        return read_run(self.directory)

    def _write_report(self) -> None:
        course, found = self.course, self.course.evaluated
        report: dict[str, Any] = {
            "task": course.data.task.name,
            "rows": {"train": len(course.data.train)},
            "notes": list(course.data.notes),
            "selected": None,
            "scores": {},
            "intervals": {},
            "degenerate": None,
            "details": {},
        }
        if found is not None and course.data.dev is not None and self.best is not None:
            examples = course.data.dev.examples
            intervals = {}
            if self.recipe.report.samples:
                intervals = score_intervals(
                    found.task,
                    examples,
                    found.predictions,
                    samples=self.recipe.report.samples,
                    level=self.recipe.report.level,
                )
            report["rows"]["dev"] = len(examples)
            # The rows that are scored have chosen the checkpoint.
            report["selected"] = {"on": "dev", **self.best.values()}
            report["scores"] = found.scores
            report["intervals"] = {name: value._asdict() for name, value in intervals.items()}
            report["degenerate"] = found.task.degenerate(found.predictions)
            report["details"] = found.task.details(examples, found.predictions)
        encoded = json.dumps(report, indent=1) + "\n"
        write_atomically(self.directory / REPORT, encoded.encode())
        values = recipe_to_values(self.recipe)
        page = run_page(self.directory.name, report, read_log(self.directory), values)
        write_atomically(self.directory / PAGE, page.encode())


def read_run(directory: Path) -> Run:
    """Read the report of a finished run. Raises :class:`OutputError` without a report."""
    report = read_value(directory / REPORT, OutputError).object()
    intervals = {name: Interval(**value) for name, value in report["intervals"].items()}
    return Run(
        directory=directory,
        scores=report["scores"],
        intervals=intervals,
        degenerate=report["degenerate"],
    )


def finetune(
    checkpoint: str | os.PathLike[str] | None = None,
    *,
    task: str = "",
    recipe: FineTuningRecipe | None = None,
    train: str | os.PathLike[str] | None = None,
    dev: str | os.PathLike[str] | None = None,
    output: str | os.PathLike[str],
    settings: Sequence[str] = (),
    watch: Callable[[Progress], None] | None = None,
) -> Run:
    """Fine-tune a checkpoint on labelled rows, in a folder from which the same call resumes.

    checkpoint: a directory or hub id.
    task: the name of a task or of a named recipe, or a .yaml file; instead of ``recipe``.
    recipe: all settings; with it, only ``output`` and ``watch`` are read of the other arguments.
    train, dev: the files of labelled rows.
    output: the run's folder.
    settings: changes of the recipe, such as ``"run.epochs=5"``.
    watch: called after every logged step.
    """
    chosen = recipe or find_recipe(
        task,
        settings,
        checkpoint=None if checkpoint is None else str(checkpoint),
        train=None if train is None else [str(train)],
        dev=None if dev is None else [str(dev)],
    )
    tuner = FineTuner(chosen, output)
    try:
        return tuner.finetune(watch)
    finally:
        tuner.world.leave()


def finetune_seeds(
    recipe: FineTuningRecipe,
    directory: str | os.PathLike[str],
    num_seeds: int,
    *,
    watch: Callable[[Progress], None] | None = None,
) -> tuple[list[Run], dict[str, Interval]]:
    """Fine-tune with ``num_seeds`` consecutive seeds from the recipe's on; rows are tokenized once.

    Returns the runs, and the mean, standard deviation and t interval of each score, which
    ``seeds.json`` records too.
    """
    runs: list[Run] = []
    data: TaskData | None = None
    for seed in range(recipe.run.seed, recipe.run.seed + num_seeds):
        seeded = replace(recipe, run=replace(recipe.run, seed=seed))
        tuner = FineTuner(seeded, Path(directory) / f"seed-{seed}", data=data)
        data = tuner.course.data
        runs.append(tuner.finetune(watch))
    return runs, summarise_seeds(Path(directory), [run.scores for run in runs])
