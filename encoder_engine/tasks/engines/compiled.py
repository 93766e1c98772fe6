"""A task's model on the compiled engine: on a CPU, without PyTorch."""

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
    """A :class:`TaskEngine` over a compiled encoder with its head.

    ``compute``: returns the outputs of a batch, as :meth:`TaskModel.outputs` does.
    """

    def __init__(self, engine: CompiledEngine, compute: Compute) -> None:
        super().__init__(engine.encoder, engine.modules)
        self._compute = compute

    def outputs(self, batch: TaskBatch) -> dict[str, npt.NDArray[Any]]:
        """Compute the input of the task's ``decode`` for a batch."""
        return self._compute(self, batch)
