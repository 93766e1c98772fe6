"""Runs a task's model as a PyTorch module, on any device."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from encoder_engine.engine.module import ModuleEngine
from encoder_engine.tasks.models.inputs import as_inputs

if TYPE_CHECKING:
    import numpy.typing as npt

    from encoder_engine.tasks.items import TaskBatch
    from encoder_engine.tasks.models.task_model import TaskModel

__all__ = ["TaskModule"]


class TaskModule(ModuleEngine):
    """A :class:`TaskEngine` for a PyTorch model, which may still be in training."""

    def __init__(self, model: TaskModel) -> None:
        super().__init__(model.encoder)
        self.model = model

    def outputs(self, batch: TaskBatch) -> dict[str, npt.NDArray[Any]]:
        """Compute the arrays that the task's ``decode`` reads, in evaluation mode.

        The model then returns to its former mode. Raises :class:`OutOfDeviceMemoryError`.
        """
        return self._within_memory(partial(self._outputs, batch))

    def _outputs(self, batch: TaskBatch) -> dict[str, npt.NDArray[Any]]:
        model = self.model
        was_training = model.training
        model.eval()
        try:
            return model.outputs(as_inputs(batch).to(model.encoder.device))
        finally:
            model.train(was_training)
