"""Saves and loads weights that transformers' layouts have no name for, in files of their own."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from encoder_engine.errors import CheckpointFileError, OutputError, TensorNamesError
from encoder_engine.files import read_bytes, write_atomically, write_checksums

if TYPE_CHECKING:
    import os
    from collections.abc import Mapping

    from torch import nn

    from encoder_engine.models import Encoder
    from encoder_engine.models.heads import HeadModel

__all__ = ["load_extra", "save_with_extra"]

_MODEL_FILES = ("config.json", "model.safetensors")


def save_with_extra(
    model: HeadModel | Encoder, extra: Mapping[str, nn.Module], directory: str | os.PathLike[str]
) -> None:
    """Write a model in transformers' layout; ``extra``: further modules, by file name.

    Raises :class:`OutputError` where a file cannot be written.
    """
    from safetensors.torch import save

    model.save_pretrained(directory)
    if not extra:
        return
    target = Path(directory)
    try:
        for name, module in extra.items():
            tensors = {key: value.detach().cpu() for key, value in module.state_dict().items()}
            write_atomically(target / name, save(tensors, metadata={"format": "pt"}))
        write_checksums(target, [*_MODEL_FILES, *extra])
    except OSError as error:
        raise OutputError(f"cannot save to {target}: {error}") from error


def load_extra(module: nn.Module, path: Path) -> None:
    """Load a module's weights from a file; the module keeps its dtype and device.

    Raises :class:`CheckpointFileError` if the file is missing or is not a safetensors file, and
    :class:`TensorNamesError` if its tensors are not those of the module.
    """
    from safetensors import SafetensorError
    from safetensors.torch import load

    try:
        tensors = load(read_bytes(path, CheckpointFileError))
    except SafetensorError as error:
        raise CheckpointFileError(
            f"{path} is not a safetensors file ({error}); copy it again"
        ) from error
    expected = {name: tuple(value.shape) for name, value in module.state_dict().items()}
    found = {name: tuple(value.shape) for name, value in tensors.items()}
    if found != expected:
        raise TensorNamesError(
            f"{path} holds {found}, the task's settings expect {expected}; it is of another model, "
            "or task.json was changed",
            missing=sorted(expected.keys() - found.keys()),
            unexpected=sorted(found.keys() - expected.keys()),
        )
    module.load_state_dict(tensors)
