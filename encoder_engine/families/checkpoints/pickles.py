"""Reads ``.bin`` checkpoints of before PyTorch 1.6: the one format that needs PyTorch."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import numpy as np

from encoder_engine.errors import CheckpointFileError, MissingDependencyError
from encoder_engine.families.checkpoints.arrays import BFLOAT16

if TYPE_CHECKING:
    from pathlib import Path

    from torch import Tensor

    from encoder_engine.families.checkpoints.arrays import Array

__all__ = ["read_pickle"]


def read_pickle(path: Path) -> dict[str, Any]:
    """Return the tensors of a ``.bin`` by name, read by torch's weights-only unpickler.

    Raises :class:`MissingDependencyError` without PyTorch and :class:`CheckpointFileError` for a
    file that holds anything but named tensors.
    """
    try:
        import torch
    except ImportError:
        raise MissingDependencyError(
            f"{path.name} is a pickle; reading it", library="torch", extra="torch"
        ) from None
    try:
        tensors: Any = torch.load(path, map_location="cpu", weights_only=True)
    # Damage makes the unpickler raise almost any type.
    except Exception as error:
        message = str(error).strip()
        # PyTorch's own first lines advise to run the code that the file may hold.
        found = re.search(r"WeightsUnpickler error: *(.+)", message)
        if found is not None or "weights_only" in message:
            reason = found[1] if found else "it holds more than tensors, or is damaged"
        else:
            reason = message.splitlines()[0] if message else type(error).__name__
        raise CheckpointFileError(
            f"{path} cannot be read as weights only: {reason}; fetch it again, or convert it to "
            "model.safetensors"
        ) from error
    if not isinstance(tensors, dict) or not all(
        isinstance(name, str) and isinstance(value, torch.Tensor) for name, value in tensors.items()
    ):
        raise CheckpointFileError(f"{path} does not hold a dictionary of named tensors")
    return tensors


def to_array(name: str, tensor: Tensor) -> Array:
    """Return a tensor as an array, a view if possible; unusable ones raise CheckpointFileError."""
    import torch

    if tensor.layout != torch.strided:
        raise CheckpointFileError(f"{name} is {tensor.layout}; weights must be dense")
    tensor = tensor.detach().contiguous()
    if tensor.dtype == torch.bfloat16:
        bits: Array = tensor.view(torch.int16).numpy()
        return bits.view(BFLOAT16)
    try:
        return np.asarray(tensor.numpy())
    except TypeError:
        raise CheckpointFileError(
            f"{name} is {tensor.dtype}; weights must be dense float64, float32, float16 or "
            "bfloat16 (a quantized checkpoint cannot be loaded)"
        ) from None
