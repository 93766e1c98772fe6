"""A task's model on the compiled engine: on a CPU, without PyTorch."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

    import numpy.typing as npt

    from encoder_engine.embedding.engines.compiled import CompiledEngine
    from encoder_engine.embedding.engines.engine import EngineName
    from encoder_engine.families.facts.spec import EncoderSpec
    from encoder_engine.tasks.items import TaskBatch

    Compute = Callable[[CompiledEngine, TaskBatch], dict[str, npt.NDArray[Any]]]

__all__ = ["CompiledModel"]


class CompiledModel:
    """A :class:`TaskEngine` over a compiled encoder with its head.

    ``compute``: returns the outputs of a batch, as :meth:`TaskModel.outputs` does.
    """

    def __init__(self, encoder: CompiledEngine, compute: Compute) -> None:
        self.encoder = encoder
        self._compute = compute

    @property
    def name(self) -> EngineName:
        """``"compiled"``."""
        return self.encoder.name

    @property
    def spec(self) -> EncoderSpec:
        """The encoder's architecture."""
        return self.encoder.spec

    @property
    def dtype(self) -> str:
        """The name of the weights' dtype."""
        return self.encoder.dtype

    @property
    def device(self) -> str:
        """``"cpu"``."""
        return self.encoder.device

    @property
    def quantization(self) -> str | None:
        """``"int8"`` or None."""
        return self.encoder.quantization

    @property
    def num_threads(self) -> int:
        """The number of threads of a call."""
        return self.encoder.num_threads

    def outputs(self, batch: TaskBatch) -> dict[str, npt.NDArray[Any]]:
        """Compute the input of the task's ``decode`` for a batch."""
        return self._compute(self.encoder, batch)
