"""The protocol of engines that compute a task's outputs, and the choice of a model's engine."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol, cast

from encoder_engine.engine.protocol import Engine
from encoder_engine.tasks import engines

if TYPE_CHECKING:
    import numpy.typing as npt

    from encoder_engine.families.facts.spec import EncoderSpec
    from encoder_engine.tasks.items import TaskBatch
    from encoder_engine.tasks.models.task_model import TaskModel

__all__ = ["TaskEngine", "task_engine"]


class TaskEngine(Engine, Protocol):
    """An engine that computes the outputs that a task decodes.

    ``module.py`` runs PyTorch modules on any device, ``compiled.py`` the compiled encoder on a CPU.
    """

    @property
    def spec(self) -> EncoderSpec: ...  # noqa: D102

    def outputs(self, batch: TaskBatch) -> dict[str, npt.NDArray[Any]]:
        """Compute the arrays that the task's ``decode`` reads for a batch, without gradients.

        Raises :class:`OutOfDeviceMemoryError`.
        """


def task_engine(model: TaskEngine | TaskModel) -> TaskEngine:
    """Return the engine that runs a task's PyTorch model; a model that is an engine is returned."""
    if hasattr(model, "run"):
        return cast("TaskEngine", model)
    return engines.TaskModule(cast("TaskModel", model))
