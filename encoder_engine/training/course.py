"""The interface between the training loop and what it trains: pretraining or fine-tuning."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

    from torch import nn

    from encoder_engine.data.loader import Position
    from encoder_engine.models.training_model import Inputs, TrainingModel
    from encoder_engine.training.best import Best
    from encoder_engine.training.recipe import (
        OptimizerRecipe,
        Precision,
        Residual,
        RunRecipe,
        ScheduleRecipe,
    )
    from encoder_engine.training.world import World

__all__ = ["Course", "StepBatches", "Stream"]


class StepBatches(NamedTuple):
    """The micro-batches of one training step on this process.

    Every process gets the same number, because DDP and FSDP run in step; a process that has fewer
    repeats the step's first one. Only the first ``num_counted`` add to the loss.
    ``next_position``: the position in the data at which the next step's batches begin, over all
    processes.
    """

    inputs: list[Inputs]
    num_counted: int
    next_position: Position


class Stream(Protocol):
    """A source of training data: yields the micro-batches of one process, step after step."""

    def steps(
        self, start: int, stop: int, position: Position, count: Callable[[int], int]
    ) -> Iterator[StepBatches]:
        """Yield this process's micro-batches of each training step from ``start`` to ``stop - 1``.

        ``position``: where the data of step ``start`` begin.
        ``count``: a function from a step to its number of micro-batches, over all processes.
        """


class Course(ABC):
    """A kind of training that a :class:`Loop` runs, such as pretraining: model, data, evaluation.

    The loop handles steps, gradients, processes, logs and checkpoints. It calls the methods of the
    course for the rest.

    ``recipe``: a :class:`TrainingRecipe` or a :class:`FineTuningRecipe`.
    """

    recipe: Any

    @property
    @abstractmethod
    def run(self) -> RunRecipe:
        """The settings of the run: length, precision, devices, intervals and checkpoints."""

    @property
    def optimizer(self) -> OptimizerRecipe:
        """The settings of the optimizer."""
        found: OptimizerRecipe = self.recipe.optimizer
        return found

    @property
    def schedule(self) -> ScheduleRecipe:
        """The schedule of the learning rate."""
        found: ScheduleRecipe = self.recipe.schedule
        return found

    @property
    @abstractmethod
    def max_length(self) -> int:
        """The most tokens of a sequence, special tokens included; FLOPs are counted for it."""

    def settle_precision(self, precision: Precision, residual: Residual | None) -> None:
        """Set, in ``recipe``, the dtype of matrix products and that of the residual stream."""
        run = replace(self.recipe.run, precision=precision, residual=residual)
        self.recipe = replace(self.recipe, run=run)

    @abstractmethod
    def read(self, *, verify: bool) -> None:
        """Open the training data; ``verify``: compare files with their checksums."""

    @abstractmethod
    def warn(self) -> None:
        """Warn of data that does not fit the recipe; called on rank 0 only."""

    @abstractmethod
    def build_model(self) -> TrainingModel:
        """Make the model with the weights that training starts from; the same at every call."""

    @abstractmethod
    def batch_stream(self, world: World) -> Stream:
        """Return the stream that yields this process's micro-batches, training step by step."""

    @abstractmethod
    def evaluation(
        self, names: Sequence[str], world: World
    ) -> Callable[[nn.Module], dict[str, float]] | None:
        """Return the function that evaluates a model; None: the run has no data to evaluate on.

        ``names``: the names of the model's losses.
        """

    def best(self, model: TrainingModel) -> Best | None:
        """Return the object that keeps the best weights; None: the run exports its last weights."""
        del model
        return None

    @abstractmethod
    def begin(self, directory: Path) -> None:
        """Write the files that identify a new run, such as its recipe, into the run's folder."""

    @abstractmethod
    def compare(self, directory: Path) -> None:
        """Raise :class:`ResumeError` if the run's folder records another recipe or other data."""

    @abstractmethod
    def num_micro_batches(self, step: int) -> int:
        """Return the number of micro-batches of a step, over all processes; steps count from 0."""

    def review(self, scores: dict[str, float]) -> None:  # noqa: B027
        """Warn if the last scores show that training failed; called on rank 0 only."""

    def finish(self, model: nn.Module) -> None:  # noqa: B027
        """Evaluate the exported weights for a report; called on all ranks when training ends."""

    @abstractmethod
    def save_model(self, model: TrainingModel, directory: Path) -> None:
        """Write the trained model into a directory; called on rank 0 only."""
