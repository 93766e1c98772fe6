"""The settings of a fine-tuning run, as dataclasses that check their values."""

from __future__ import annotations

import math
from dataclasses import asdict, field
from typing import TYPE_CHECKING, Any, Literal

from encoder_engine.dataclass import dataclass
from encoder_engine.errors import ConfigError
from encoder_engine.json_values import JsonSource
from encoder_engine.tasks.registry import read_task, task_values
from encoder_engine.tasks.task_folder import TableFormat
from encoder_engine.training.best import SelectionRecipe
from encoder_engine.training.recipe import (
    OptimizerRecipe,
    Precision,
    Residual,
    RunRecipe,
    ScheduleRecipe,
)
from encoder_engine.training.recipe_values import RecipeValue

if TYPE_CHECKING:
    from collections.abc import Mapping

    from encoder_engine.tasks.task import Task

__all__ = [
    "DataRecipe",
    "FineTuningRecipe",
    "ModelRecipe",
    "ReportRecipe",
    "RunSettings",
    "StepRecipe",
    "TunedOptimizer",
    "TunedSchedule",
    "recipe_from_values",
    "recipe_to_values",
]

# A small set is repeated until it gives this many steps, but no more often than Mosbach et al.
# (2021) did, whose 20 epochs made small sets of GLUE stable.
LEAST_STEPS, MOST_EPOCHS, USUAL_EPOCHS = 500, 20, 3


def _at_least(what: str, value: float | None, least: float) -> None:
    if value is not None and not least <= value < math.inf:
        raise ConfigError(f"{what} must be at least {least:g} and finite, got {value!r}")


@dataclass(frozen=True, kw_only=True)
class ModelRecipe:
    """The checkpoint, and the part of it that is trained.

    ``checkpoint``: a directory or hub id.
    ``dropout``: replaces every dropout of the checkpoint's configuration; None: as configured.
    ``train``: ``"all"``; ``"head"``: the encoder is frozen; ``"bias"``: only biases and the head
    (BitFit, Zaken et al. 2022); ``"lora"``: only low-rank adapters and the head (Hu et al. 2022).
    ``cache_frozen``: for a frozen encoder, compute each row once instead of once per epoch; the
    outputs are kept in memory.
    ``lora_rank``, ``lora_alpha``: an adapter adds (alpha / rank) B A, a matrix of this rank.
    ``lora_targets``: the dense layers with adapters, by the last part of transformers' names.
    ``frozen_blocks``: how many of the first blocks are frozen, together with the embeddings.
    ``freeze_embeddings``: the embeddings are frozen.
    ``reinit_blocks``: how many of the last blocks begin with random weights, together with the
    pooler (Zhang et al. 2021); refused with ``"lora"``, whose adapters are for the checkpoint.
    """

    checkpoint: str = ""
    dropout: float | None = None
    train: Literal["all", "head", "bias", "lora"] = "all"
    cache_frozen: bool = True
    lora_rank: int = 8
    lora_alpha: float = 16.0
    lora_targets: tuple[str, ...] = ("query", "value")
    frozen_blocks: int = 0
    freeze_embeddings: bool = False
    reinit_blocks: int = 0

    def __post_init__(self) -> None:
        if self.dropout is not None and not 0.0 <= self.dropout < 1.0:
            raise ConfigError(f"model.dropout must be at least 0 and below 1, got {self.dropout}")
        _at_least("model.frozen_blocks", self.frozen_blocks, 0)
        _at_least("model.reinit_blocks", self.reinit_blocks, 0)
        _at_least("model.lora_rank", self.lora_rank, 1)
        _at_least("model.lora_alpha", self.lora_alpha, 0)
        if self.train == "lora" and self.reinit_blocks:
            raise ConfigError(
                f"model.reinit_blocks is {self.reinit_blocks} and model.train is lora: adapters "
                "are saved without the blocks, and the checkpoint has other weights there; set "
                "model.reinit_blocks to 0 or model.train to all"
            )


@dataclass(frozen=True, kw_only=True)
class DataRecipe:
    """The labelled files, and how long texts are handled.

    ``train``, ``dev``: files; without ``dev`` no checkpoint is selected and nothing is scored.
    ``train_every``, ``dev_every``: take each k-th row, from the first.
    ``header``: the columns of .csv and .tsv files without a header.
    ``quoting``: False: quotation marks in .csv and .tsv files are plain characters, as in GLUE.
    ``max_length``: the most tokens of a sequence; None: 512, or the model's limit if it is lower.
    ``truncate``: truncate longer texts; False: split them into windows.
    ``stride``: tokens that a window shares with the next; None: a quarter of ``max_length``.
    """

    train: tuple[str, ...] = ()
    dev: tuple[str, ...] = ()
    train_every: int = 1
    dev_every: int = 1
    header: tuple[str, ...] = ()
    quoting: bool = True
    max_length: int | None = None
    truncate: bool = False
    stride: int | None = None

    def __post_init__(self) -> None:
        _at_least("data.train_every", self.train_every, 1)
        _at_least("data.dev_every", self.dev_every, 1)
        _at_least("data.max_length", self.max_length, 3)
        _at_least("data.stride", self.stride, 0)

    @property
    def tables(self) -> TableFormat:
        """The format of the .csv and .tsv files."""
        return TableFormat(header=self.header, quoting=self.quoting)


@dataclass(frozen=True, kw_only=True)
class TunedOptimizer(OptimizerRecipe):
    """The optimizer, with fine-tuning's defaults.

    ``head_rate``: the head's learning rate, as a multiple of the encoder's.
    ``layer_decay``: a block's learning rate, as a multiple of the next higher block's (Howard &
    Ruder 2018).
    """

    learning_rate: float = 3e-5
    betas: tuple[float, float] = (0.9, 0.999)
    epsilon: float = 1e-8
    head_rate: float = 1.0
    layer_decay: float = 1.0

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("head_rate", "layer_decay"):
            value = getattr(self, name)
            if not 0.0 < value < math.inf:
                raise ConfigError(f"optimizer.{name} must be above 0 and finite, got {value}")


@dataclass(frozen=True, kw_only=True)
class TunedSchedule(ScheduleRecipe):
    """The schedule of the learning rate, with fine-tuning's warm-up."""

    warmup: float = 0.1


@dataclass(frozen=True, kw_only=True)
class StepRecipe:
    """The number of examples in a training step.

    ``examples``: rows of a step, over all processes. Where a text is cut into windows, each window
    counts as a row, and the windows of a text may lie in different steps.
    ``micro_tokens``: the most tokens of a micro-batch, which one process computes at a time; a
    longer row is one by itself.
    """

    examples: int = 32
    micro_tokens: int = 8192

    def __post_init__(self) -> None:
        _at_least("batch.examples", self.examples, 1)
        _at_least("batch.micro_tokens", self.micro_tokens, 3)


@dataclass(frozen=True, kw_only=True)
class RunSettings:
    """Length, precision, devices, evaluation, logging and checkpoints of a run.

    ``epochs``: passes over the training rows. ``steps``: the number of steps, instead of epochs.
    Neither: 3 epochs; for small data sets more, to reach 500 steps, but at most 20.
    ``evaluate_every``, ``checkpoint_every``: intervals in steps; None: evaluations after each
    epoch, and checkpoints as often as evaluations.
    The others: see :class:`encoder_engine.training.RunRecipe`.
    """

    epochs: float | None = None
    steps: int | None = None
    seed: int = 0
    device: str = "auto"
    precision: Precision | None = None
    residual: Residual | None = None
    deterministic: bool = False
    compile: bool = False
    graphs: bool = False
    recompute: bool = False
    ema: float | None = None
    sharding: Literal["none", "full"] = "none"
    log_every: int = 1
    evaluate_every: int | None = None
    checkpoint_every: int | None = None
    keep_last: int = 1
    trackers: tuple[Literal["tensorboard", "wandb"], ...] = ()

    def __post_init__(self) -> None:
        if self.epochs is not None and self.steps is not None:
            raise ConfigError("run.epochs and run.steps both say how long to train; leave out one")
        if self.epochs is not None and not 0.0 < self.epochs < math.inf:
            raise ConfigError(f"run.epochs must be above 0 and finite, got {self.epochs}")
        for name in ("steps", "evaluate_every", "checkpoint_every"):
            _at_least(f"run.{name}", getattr(self, name), 1)

    def for_steps(self, epoch_steps: int) -> RunRecipe:
        """Return these settings as the training loop's, given the number of steps in an epoch."""
        steps = self.steps
        if steps is None and self.epochs is not None:
            steps = max(1, round(self.epochs * epoch_steps))
        if steps is None:
            steps = max(USUAL_EPOCHS * epoch_steps, min(LEAST_STEPS, MOST_EPOCHS * epoch_steps))
        evaluate_every = self.evaluate_every or min(epoch_steps, steps)
        settings = vars(self) | {
            "steps": steps,
            "evaluate_every": evaluate_every,
            "checkpoint_every": self.checkpoint_every or evaluate_every,
        }
        del settings["epochs"]
        return RunRecipe(**settings)


@dataclass(frozen=True, kw_only=True)
class ReportRecipe:
    """The statistics in the report of a run.

    ``samples``: the most bootstrap samples of an interval, fewer with many dev rows; 0: no
    intervals.
    ``level``: the confidence level of the intervals.
    """

    samples: int = 1000
    level: float = 0.95

    def __post_init__(self) -> None:
        _at_least("report.samples", self.samples, 0)
        if not 0.0 < self.level < 1.0:
            raise ConfigError(f"report.level must be between 0 and 1, got {self.level}")


@dataclass(frozen=True, kw_only=True)
class FineTuningRecipe:
    """All settings of a fine-tuning run."""

    task: Task[Any, Any]
    model: ModelRecipe = field(default_factory=ModelRecipe)
    data: DataRecipe = field(default_factory=DataRecipe)
    optimizer: TunedOptimizer = field(default_factory=TunedOptimizer)
    schedule: TunedSchedule = field(default_factory=TunedSchedule)
    batch: StepRecipe = field(default_factory=StepRecipe)
    run: RunSettings = field(default_factory=RunSettings)
    selection: SelectionRecipe = field(default_factory=SelectionRecipe)
    report: ReportRecipe = field(default_factory=ReportRecipe)


_SECTIONS: dict[str, type[Any]] = {
    "model": ModelRecipe,
    "data": DataRecipe,
    "optimizer": TunedOptimizer,
    "schedule": TunedSchedule,
    "batch": StepRecipe,
    "run": RunSettings,
    "selection": SelectionRecipe,
    "report": ReportRecipe,
}


def recipe_to_values(recipe: FineTuningRecipe) -> dict[str, Any]:
    """Return a recipe's settings as nested mappings, one per section."""
    values = {name: asdict(getattr(recipe, name)) for name in _SECTIONS}
    return {"task": task_values(recipe.task), **values}


def recipe_from_values(values: Mapping[str, Any]) -> FineTuningRecipe:
    """Make a recipe from nested mappings, one per section; missing keys get their defaults.

    Raises :class:`ConfigError` that names an unknown key or a wrong value.
    """
    source = JsonSource(name="", error=ConfigError, mend="")
    value = RecipeValue(dict(values), source)
    value.only_keys(["task", *_SECTIONS])
    task = read_task(value.get("task"))
    sections = {
        name: value.get(name).read_as(kind)
        for name, kind in _SECTIONS.items()
        if value.get(name).present
    }
    return FineTuningRecipe(task=task, **sections)
