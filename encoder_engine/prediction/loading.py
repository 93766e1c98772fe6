"""Loads a task's model from the directory of its adapters, whose base is a checkpoint."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import TYPE_CHECKING

from encoder_engine.errors import ChecksumError, MissingPoolerWarning, UnusedWeightsWarning
from encoder_engine.families.checkpoints.adapters import ADAPTER, weights_directory
from encoder_engine.models.checkpoints.fingerprint import weights_sha256
from encoder_engine.models.encoder import Encoder
from encoder_engine.models.lora.loading import load_modules_to_save

if TYPE_CHECKING:
    import os

    import torch

    from encoder_engine.tasks.task import TaskModel
    from encoder_engine.tasks.task_folder import SavedTask

__all__ = ["load_task_model"]


def load_task_model(
    saved: SavedTask,
    directory: str | os.PathLike[str],
    *,
    device: str | torch.device = "auto",
    dtype: str | torch.dtype = "auto",
) -> TaskModel:
    """Load a task's model, in evaluation mode, from its directory or that of its adapters.

    Adapters are merged into the encoder of their base. Raises :class:`ChecksumError` if that has
    other weights than in training. Other exceptions: see :meth:`Task.load_model`,
    :meth:`Encoder.from_pretrained` and :func:`load_modules_to_save`.
    """
    task = saved.task
    if not (Path(directory) / ADAPTER).is_file():
        return task.load_model(directory, device=device, dtype=dtype)
    with warnings.catch_warnings():
        # The encoder's loader knows no head, which is read below.
        warnings.simplefilter("ignore", MissingPoolerWarning)
        warnings.simplefilter("ignore", UnusedWeightsWarning)
        if saved.base_sha256 is not None:
            _check_base(Path(directory), saved.base_sha256)
        encoder = Encoder.from_pretrained(directory, device, dtype)
    model = task.make_model(encoder)
    load_modules_to_save(model.head_model, directory, others=model.own_modules)
    return model.eval()


def _check_base(directory: Path, expected: str) -> None:
    base = weights_directory(directory)
    # The digest is of the weights as training loaded them, in whatever files they lie.
    if weights_sha256(Encoder.from_pretrained(base, "cpu", "float32").state_dict()) != expected:
        raise ChecksumError(
            f"the adapter in {directory} was trained on other weights than {base} has now; put the "
            "former ones back, or load the run's folder 'model', which needs no checkpoint"
        )
