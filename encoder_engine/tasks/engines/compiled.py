"""Runs a task's model on the compiled engine: in C++ on a CPU, without PyTorch."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from encoder_engine.engine.compiled import CompiledEngine

if TYPE_CHECKING:
    from collections.abc import Callable

    import numpy.typing as npt

    from encoder_engine.tasks.items import TaskBatch

    Compute = Callable[[CompiledEngine, TaskBatch], dict[str, npt.NDArray[Any]]]

__all__ = ["CompiledModel"]


class CompiledModel(CompiledEngine):
    """A :class:`TaskEngine` that computes with a compiled encoder and its head.

    ``compute``: a function from this engine and a batch to the batch's outputs, which are those of
    :meth:`TaskModel.outputs`.
    """

    def __init__(self, engine: CompiledEngine, compute: Compute) -> None:
        super().__init__(engine.encoder, engine.modules)
        self._compute = compute

    def outputs(self, batch: TaskBatch) -> dict[str, npt.NDArray[Any]]:
        """Compute the arrays that the task's ``decode`` reads, for a batch of items."""
        return self._compute(self, batch)
