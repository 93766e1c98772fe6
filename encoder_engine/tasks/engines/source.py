"""Reads a task's model directory for the compiled engine."""

from __future__ import annotations

import warnings
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING

import numpy as np

from encoder_engine.dataclass import dataclass
from encoder_engine.engine.choosing import compiled_engine
from encoder_engine.errors import (
    CheckpointFileError,
    NonFiniteWeightsError,
    TensorNamesError,
    TensorShapeError,
    UnusedWeightsWarning,
)
from encoder_engine.families.checkpoints.adapters import ADAPTER, ADAPTER_WEIGHTS, PEFT_PREFIX
from encoder_engine.families.checkpoints.arrays import widen
from encoder_engine.families.checkpoints.files import open_tensor_file
from encoder_engine.opening.recipe import encoder_directory

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

    from encoder_engine.engine.choosing import EngineRequest
    from encoder_engine.engine.compiled import CompiledEngine
    from encoder_engine.families.checkpoints.arrays import Array
    from encoder_engine.families.checkpoints.files import StoredTensor
    from encoder_engine.families.facts.head_layout import Task as HeadTask

__all__ = ["CompiledSource", "read_exactly"]


def read_exactly(
    path: Path,
    tensors: Mapping[str, StoredTensor],
    shapes: Mapping[str, tuple[int, ...]],
    settings: str,
    prefix: str = "",
) -> dict[str, Array]:
    """Read tensors from a file or directory that must hold exactly the names in ``shapes``.

    settings: the file that determines the shapes, named in messages. prefix: put before tensor
    names in messages. Exceptions: see :meth:`CompiledSource.read_beside`.
    """
    mend = f"it is of another model, or {settings} was changed"
    missing, unexpected = sorted(shapes.keys() - tensors), sorted(tensors.keys() - shapes)
    if missing or unexpected:
        raise TensorNamesError(
            f"{path} does not hold the weights that {settings} expects: missing "
            f"{missing or 'none'}, unexpected {unexpected or 'none'}; {mend}",
            missing=missing,
            unexpected=unexpected,
        )
    for name, shape in shapes.items():
        if tensors[name].shape != shape:
            raise TensorShapeError(
                f"{path}: {prefix}{name} is {list(tensors[name].shape)}, {settings} expects "
                f"{list(shape)}; {mend}",
                mismatched=[(name, tensors[name].shape, shape)],
            )
    found = {name: widen(tensors[name].read()) for name in shapes}
    for name, array in found.items():
        if not np.isfinite(array).all():
            raise NonFiniteWeightsError(
                f"{path}: {prefix}{name} holds NaN or infinity; the file is damaged, or its "
                "training diverged"
            )
    return found


@dataclass(frozen=True, kw_only=True)
class CompiledSource:
    """The directory of a task's model, or of its adapters, and the precision to load it in."""

    directory: Path
    request: EngineRequest

    @property
    def has_adapter(self) -> bool:
        """Whether the directory holds LoRA adapters, whose base model is in another directory."""
        return (self.directory / ADAPTER).is_file()

    def load_encoder(self) -> CompiledEngine:
        """Load the encoder of the directory, without a head, for the compiled engine."""
        with self._knowing_heads():
            return compiled_engine(encoder_directory(self.directory), self.request)

    def load_head(self, head: HeadTask, labels: Sequence[str] | None) -> CompiledEngine:
        """Load the directory's encoder with its head, for the compiled engine.

        ``labels``: the names of the head's outputs, which only a directory of adapters needs.
        """
        folder = encoder_directory(self.directory)
        with self._knowing_heads():
            return compiled_engine(
                *(folder, self.request, head), labels=labels if self.has_adapter else None
            )

    def read_beside(
        self, file: str, module: str, shapes: Mapping[str, tuple[int, ...]]
    ) -> dict[str, Array]:
        """Read weights that transformers' layouts have no name for, float32 or float64.

        They come from ``file``, or with adapters from the adapter's file under the name ``module``.

        Raises :class:`CheckpointFileError` for a missing or unreadable file,
        :class:`TensorNamesError` and :class:`TensorShapeError` for names or shapes that differ from
        ``shapes``, and :class:`NonFiniteWeightsError` for NaN or infinity.
        """
        path = self.directory / (ADAPTER_WEIGHTS[0] if self.has_adapter else file)
        if not path.is_file():
            raise CheckpointFileError(f"{self.directory} has no {path.name}; copy it again")
        prefix = f"{PEFT_PREFIX}{module}." if self.has_adapter else ""
        with ExitStack() as files:
            tensors = {
                name.removeprefix(prefix): tensor
                for name, tensor in open_tensor_file(path, files).items()
                if name.startswith(prefix)
            }
            return read_exactly(path, tensors, shapes, "task.json", prefix)

    @contextmanager
    def _knowing_heads(self) -> Iterator[None]:
        """Silence, within this context, warnings of unused weights if there are adapters."""
        with warnings.catch_warnings():
            if self.has_adapter:
                warnings.simplefilter("ignore", UnusedWeightsWarning)
            yield
