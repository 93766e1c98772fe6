"""Converts arrays to tensors and back, and checkpoint tensors to stacked parameters and back."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import torch

from encoder_engine.families.checkpoints.arrays import BFLOAT16, words
from encoder_engine.families.checkpoints.assembling import raise_of_unstored
from encoder_engine.files import writing

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from torch import Tensor

    from encoder_engine.families.checkpoints.arrays import Array
    from encoder_engine.families.facts.names import Origin

__all__ = [
    "as_sparse_tensor",
    "save_tensors",
    "stack_tensors",
    "to_array",
    "to_tensor",
    "unstack_parameter",
]


def to_tensor(array: Array) -> Tensor:
    """Return a checkpoint's array as a tensor that shares its memory."""
    if array.dtype != BFLOAT16:
        return torch.from_numpy(array)
    bits = torch.from_numpy(words(array).view(np.int16))
    return bits.view(torch.bfloat16)


def to_array(tensor: Tensor) -> Array:
    """Return a CPU tensor as an array of a checkpoint's dtype that shares its memory."""
    tensor = tensor.detach()
    if tensor.dtype != torch.bfloat16:
        array: Array = tensor.numpy()
        return array
    return tensor.view(torch.int16).numpy().view(BFLOAT16)


def stack_tensors(origin: Origin, tensors: Mapping[str, Tensor]) -> Tensor:
    """Stack a checkpoint's tensors along the first dimension into one parameter.

    ``origin``: the tensors' names, and how to transpose and rearrange them.
    """
    parts = [tensors[name] for name in origin.names]
    if origin.transposed:
        parts = [part.T for part in parts]
    whole = parts[0] if len(parts) == 1 else torch.cat(parts)
    whole = _swap_halves(whole) if origin.halves_swapped else whole
    _, order, columns = origin.arrangement
    if order is not None:
        # The row of zeros is at -1.
        zeros = whole.new_zeros((1, *whole.shape[1:]))
        whole = torch.cat((whole, zeros))[torch.from_numpy(order)]
    return whole if columns is None else whole[:, torch.from_numpy(columns)]


def unstack_parameter(origin: Origin, parameter: Tensor) -> dict[str, Tensor]:
    """Split a parameter into a checkpoint's tensors, by name: the inverse of :func:`stack_tensors`.

    Raises :class:`UnsupportedFeatureError` where rows that the checkpoint leaves out are not zero.
    """
    _, order, columns = origin.arrangement
    whole = parameter
    if order is not None:
        if parameter[torch.from_numpy(order < 0)].any():
            raise_of_unstored(origin)
        whole = parameter[torch.from_numpy(origin.places)]
    whole = whole if columns is None else whole[:, torch.from_numpy(np.argsort(columns))]
    whole = _swap_halves(whole) if origin.halves_swapped else whole
    parts = torch.split(whole, list(origin.rows_of(len(whole))))
    if origin.transposed:
        parts = tuple(part.T for part in parts)
    return dict(zip(origin.names, (part.contiguous() for part in parts), strict=True))


def _swap_halves(whole: Tensor) -> Tensor:
    return torch.cat(whole.chunk(2)[::-1])


def as_sparse_tensor(indptr: Array, indices: Array, values: Array, dimension: int) -> Tensor:
    """Return a matrix in CSR form as a sparse (COO) tensor on the CPU, [N, dimension]."""
    rows = np.repeat(np.arange(len(indptr) - 1), np.diff(indptr))
    places = torch.from_numpy(np.stack([rows, indices.astype(np.int64)]))
    size = (len(indptr) - 1, dimension)
    return torch.sparse_coo_tensor(
        *(places, torch.from_numpy(values), size), is_coalesced=True, check_invariants=True
    )


def save_tensors(path: Path, arrays: Mapping[str, Array]) -> None:
    """Write arrays by name to a file in the format of ``torch.save``, as tensors."""
    tensors = {name: torch.from_numpy(np.array(array)) for name, array in arrays.items()}
    with writing(path):
        torch.save(tensors, path)
