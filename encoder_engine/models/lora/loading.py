"""Loads the head and other modules of an adapter's directory into a model."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

import torch

from encoder_engine.errors import (
    CheckpointFileError,
    NonFiniteWeightsError,
    TensorNamesError,
    TensorShapeError,
)
from encoder_engine.families.checkpoints.adapters import ADAPTER_WEIGHTS, PEFT_PREFIX
from encoder_engine.families.checkpoints.files import open_tensor_file
from encoder_engine.models.checkpoints.stacking import stack_tensors, to_tensor
from encoder_engine.models.lora.saving import weights_outside

if TYPE_CHECKING:
    import os
    from collections.abc import Mapping

    from torch import nn

    from encoder_engine.models.head_network import HeadNetwork

__all__ = ["load_modules_to_save"]


@torch.no_grad()
def load_modules_to_save(
    head: HeadNetwork | None,
    directory: str | os.PathLike[str],
    *,
    others: Mapping[str, nn.Module] | None = None,
) -> None:
    """Load the head and other modules that ``save_adapter`` wrote, from the adapter's directory.

    ``others``: the modules beside encoder and head, by the names under which they were saved.
    All keep dtype and device. :meth:`Encoder.from_pretrained` reads the encoder and its pooler.

    Raises :class:`CheckpointFileError` for a directory without ``adapter_model.safetensors``,
    :class:`TensorNamesError` for a weight that the file lacks, :class:`TensorShapeError` for one of
    another shape, and :class:`NonFiniteWeightsError` for NaN or infinity.
    """
    path = Path(directory) / ADAPTER_WEIGHTS[0]
    if not path.is_file():
        raise CheckpointFileError(f"{directory} has no {path.name}; copy the adapter again")
    with ExitStack() as files:
        tensors = open_tensor_file(path, files)
        for origin, weight in weights_outside(head, others or {}):
            missing = [name for name in origin.names if PEFT_PREFIX + name not in tensors]
            if missing:
                raise TensorNamesError(
                    f"{path} has no {', '.join(missing)}, which the task's model has: it is the "
                    "adapter of another model, or task.json was changed",
                    missing=missing,
                )
            whole = stack_tensors(
                origin,
                {name: to_tensor(tensors[PEFT_PREFIX + name].read()) for name in origin.names},
            )
            if whole.shape != weight.shape:
                name, found, expected = origin.names[0], tuple(whole.shape), tuple(weight.shape)
                raise TensorShapeError(
                    f"{path}: {name} is {list(found)}, the task's settings expect "
                    f"{list(expected)}; it is of another model, or task.json was changed",
                    mismatched=[(name, found, expected)],
                )
            if not torch.isfinite(whole).all():
                raise NonFiniteWeightsError(
                    f"{path}: {', '.join(origin.names)} holds NaN or infinity; the file is "
                    "damaged, or its training diverged"
                )
            weight.copy_(whole)
