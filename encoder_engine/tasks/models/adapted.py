"""Loads a task's model from a directory of LoRA adapters, whose base is a checkpoint."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING

from encoder_engine.errors import MissingPoolerWarning, UnusedWeightsWarning
from encoder_engine.models.checkpoints.fingerprint import weights_sha256
from encoder_engine.models.encoder import Encoder
from encoder_engine.models.lora.loading import load_modules_to_save

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from encoder_engine.tasks.models.task_model import TaskModel

__all__ = ["encoder_sha256", "load_adapted_model"]


def load_adapted_model(
    make_model: Callable[[Encoder], TaskModel], directory: Path, *, device: str, dtype: str
) -> TaskModel:
    """Load a task's model, in evaluation mode; the adapters are merged into the base encoder.

    ``make_model``: makes the task's model with a random head. Exceptions: see
    :meth:`Encoder.from_pretrained` and :func:`load_modules_to_save`.
    """
    with warnings.catch_warnings():
        # The encoder's loader knows no head, which is read below.
        warnings.simplefilter("ignore", MissingPoolerWarning)
        warnings.simplefilter("ignore", UnusedWeightsWarning)
        encoder = Encoder.from_pretrained(directory, device, dtype)
    model = make_model(encoder)
    load_modules_to_save(model.head_model, directory, others=model.own_modules)
    return model.eval()


def encoder_sha256(directory: Path) -> str:
    """Return a digest of an encoder's weights in float32, the same for every file format."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", MissingPoolerWarning)
        warnings.simplefilter("ignore", UnusedWeightsWarning)
        return weights_sha256(Encoder.from_pretrained(directory, "cpu", "float32").state_dict())
