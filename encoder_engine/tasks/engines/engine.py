"""The protocol of an engine of a task's model."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

from encoder_engine.engine.protocol import Engine

if TYPE_CHECKING:
    import numpy.typing as npt

    from encoder_engine.families.facts.spec import EncoderSpec
    from encoder_engine.tasks.items import TaskBatch

__all__ = ["TaskEngine"]


class TaskEngine(Engine, Protocol):
    """An engine that computes what a task decodes.

    ``module.py`` runs PyTorch's modules on any device, ``compiled.py`` the compiled encoder on a
    CPU.
    """

    @property
    def spec(self) -> EncoderSpec: ...  # noqa: D102

    def outputs(self, batch: TaskBatch) -> dict[str, npt.NDArray[Any]]:
        """Compute the input of the task's ``decode`` for a batch, without gradients and losses.

        Raises :class:`OutOfDeviceMemoryError`.
        """
