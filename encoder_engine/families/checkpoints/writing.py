"""Writes checkpoints, and arrays as a safetensors file without PyTorch, including bfloat16."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import numpy as np

from encoder_engine.families.checkpoints.arrays import BFLOAT16
from encoder_engine.files import CHECKSUMS, PendingFile, write_atomically, write_checksums, writing

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from encoder_engine.families.checkpoints.arrays import Array

__all__ = ["write_model", "write_tensors"]

WEIGHTS, CONFIG = "model.safetensors", "config.json"
_NAMES = {
    np.dtype("<f8"): "F64",
    np.dtype("<f4"): "F32",
    np.dtype("<f2"): "F16",
    BFLOAT16: "BF16",
    np.dtype("i1"): "I8",
    np.dtype("<i4"): "I32",
    np.dtype("<i8"): "I64",
}
# The format asks for a header whose length is a multiple of 8.
_ALIGNMENT = 8


def write_model(
    directory: Path, config: Mapping[str, Any], write_weights: Callable[[Path], None]
) -> None:
    """Write config.json, SHA256SUMS and, by ``write_weights`` to a path, the weights."""
    encoded = (json.dumps(config, indent=2) + "\n").encode()
    directory.mkdir(parents=True, exist_ok=True)
    # Until the new configuration is there the directory is not a model: the old weights must
    # never be read by the new configuration, nor the new ones by the old.
    for name in (CHECKSUMS, CONFIG):
        (directory / name).unlink(missing_ok=True)
    write_weights(directory / WEIGHTS)
    write_atomically(directory / CONFIG, encoded)
    write_checksums(directory, [CONFIG, WEIGHTS])


def write_tensors(path: Path, tensors: Mapping[str, Array]) -> None:
    """Write arrays by name to a safetensors file, which appears complete or not at all.

    The widest numbers come first, so that each array begins at a multiple of its item size. Raises
    :class:`OutputError`.
    """
    ordered = sorted(tensors.items(), key=lambda item: (-item[1].dtype.itemsize, item[0]))
    header: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    end = 0
    for name, array in ordered:
        begin, end = end, end + array.nbytes
        header[name] = {
            "dtype": _NAMES[array.dtype],
            "shape": list(array.shape),
            "data_offsets": [begin, end],
        }
    encoded = json.dumps(header).encode()
    encoded += b" " * (-len(encoded) % _ALIGNMENT)
    pending = PendingFile(path, overwrite=True)
    try:
        with writing(path):
            pending.stream.write(len(encoded).to_bytes(8, "little") + encoded)
            for _, array in ordered:
                pending.stream.write(np.ascontiguousarray(array).reshape(-1).view(np.uint8).data)
            pending.publish()
    finally:
        pending.discard()
