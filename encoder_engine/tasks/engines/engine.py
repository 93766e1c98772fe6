"""The protocol of an engine of a task's model."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    import numpy.typing as npt

    from encoder_engine.embedding.engines.engine import EngineName
    from encoder_engine.families.facts.spec import EncoderSpec
    from encoder_engine.tasks.items import TaskBatch

__all__ = ["TaskEngine"]


class TaskEngine(Protocol):
    """Computes what a task decodes. The facts are those of :class:`Engine`.

    ``module.py`` runs PyTorch's modules on any device, ``compiled.py`` the compiled encoder on a
    CPU.
    """

    @property
    def name(self) -> EngineName: ...  # noqa: D102
    @property
    def spec(self) -> EncoderSpec: ...  # noqa: D102
    @property
    def dtype(self) -> str: ...  # noqa: D102
    @property
    def device(self) -> str: ...  # noqa: D102
    @property
    def quantization(self) -> str | None: ...  # noqa: D102
    @property
    def num_threads(self) -> int: ...  # noqa: D102

    def outputs(self, batch: TaskBatch) -> dict[str, npt.NDArray[Any]]:
        """Compute the input of the task's ``decode`` for a batch, without gradients and losses."""
