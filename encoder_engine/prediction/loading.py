"""Loads a task's model from the directory of its adapters, whose base is a checkpoint."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Any

from encoder_engine.errors import MissingPoolerWarning, UnusedWeightsWarning
from encoder_engine.families.checkpoints.adapters import ADAPTER
from encoder_engine.models.encoder import Encoder
from encoder_engine.models.lora.loading import load_modules_to_save

if TYPE_CHECKING:
    import os

    import torch

    from encoder_engine.tasks.task import Task, TaskModel

__all__ = ["load_task_model"]


def load_task_model(
    task: Task[Any, Any],
    directory: str | os.PathLike[str],
    *,
    device: str | torch.device = "auto",
    dtype: str | torch.dtype = "auto",
) -> TaskModel:
    """Load a task's model, in evaluation mode, from its directory or that of its adapters.

    Adapters are merged into the encoder of their base. Exceptions: see :meth:`Task.load_model`,
    :meth:`Encoder.from_pretrained` and :func:`load_modules_to_save`.
    """
    if not (Path(directory) / ADAPTER).is_file():
        return task.load_model(directory, device=device, dtype=dtype)
    with warnings.catch_warnings():
        # The encoder's loader knows no head, which is read below.
        warnings.simplefilter("ignore", MissingPoolerWarning)
        warnings.simplefilter("ignore", UnusedWeightsWarning)
        encoder = Encoder.from_pretrained(directory, device, dtype)
    model = task.make_model(encoder)
    load_modules_to_save(model.head_model, directory, others=model.own_modules)
    return model.eval()
