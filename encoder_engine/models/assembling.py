"""A checkpoint's tensors made parameters, each accounted for and looked at."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING

import torch

from encoder_engine.errors import (
    CheckpointFileError,
    NonFiniteWeightsError,
    SuspiciousWeightsWarning,
    TensorNamesError,
    TensorShapeError,
    UnsupportedFeatureError,
)
from encoder_engine.models.names import origins

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch import Tensor

    from encoder_engine.models.names import Rename

__all__ = ["assemble", "check_overflow", "check_tied", "drop_copy"]

WEIGHT_DTYPES = (torch.float64, torch.float32, torch.float16, torch.bfloat16)
# A trained weight is of order 1; a flipped exponent bit makes it 1e9 or far more.
LARGEST_PLAUSIBLE = 1e4


def drop_copy(tensors: dict[str, Tensor], copy: str, original: str) -> None:
    """Keep one of two names for what should be the same tensor."""
    copied = tensors.pop(copy)
    if not torch.equal(tensors.setdefault(original, copied), copied):
        raise CheckpointFileError(
            f"{copy} should be {original} again, but they differ; the checkpoint is damaged, or "
            "its model was trained with tables of their own, which is not supported"
        )


def check_tied(copied: Tensor, tokens: Tensor, copy: str) -> None:
    """Refuse a vocabulary that is not the token embeddings again."""
    if not torch.equal(copied, tokens):
        raise UnsupportedFeatureError(
            f"{copy} is another table than the token embeddings; a vocabulary of its own is not "
            "supported"
        )


def assemble(
    parameters: dict[str, Tensor], tensors: dict[str, Tensor], renames: Sequence[Rename]
) -> dict[str, Tensor]:
    """Map checkpoint tensors to parameters, or say everything that does not fit."""
    sources = origins(renames, parameters)
    wanted = {their: ours for ours, origin in sources.items() for their in origin.names}
    missing = sorted(set(wanted) - set(tensors))
    unexpected = sorted(set(tensors) - set(wanted))
    if missing or unexpected:
        raise TensorNamesError(
            f"the weights and config.json do not belong together: missing {_listed(missing)}; "
            f"unexpected {_listed(unexpected)}",
            missing=missing,
            unexpected=unexpected,
        )
    mismatched = []
    for ours, origin in sources.items():
        theirs = origin.names
        rows, *rest = parameters[ours].shape
        expected = (rows // len(theirs), *rest)
        mismatched += [
            (their, tuple(tensors[their].shape), expected)
            for their in theirs
            if tuple(tensors[their].shape) != expected
        ]
    if mismatched:
        told = "; ".join(
            f"{name} is {list(f)}, expected {list(e)}" for name, f, e in mismatched[:8]
        )
        raise TensorShapeError(
            f"{len(mismatched)} tensors do not have the shape config.json says: {told}",
            mismatched=mismatched,
        )
    whole = {their for their, ours in wanted.items() if parameters[ours].dtype == torch.int8}
    _check_values({their: tensors[their] for their in wanted if their not in whole})
    _check_whole({their: tensors[their] for their in whole})
    return {ours: origin.join(tensors) for ours, origin in sources.items()}


def _check_values(tensors: dict[str, Tensor]) -> None:
    suspicious = []
    for name, tensor in tensors.items():
        if tensor.dtype not in WEIGHT_DTYPES or tensor.layout != torch.strided:
            raise CheckpointFileError(
                f"{name} is {tensor.dtype}, {tensor.layout}; weights must be dense float64, "
                "float32, float16 or bfloat16 (a quantized checkpoint cannot be loaded)"
            )
        if tensor.numel() == 0:
            continue
        low, high = torch.aminmax(tensor)
        if not (torch.isfinite(low) and torch.isfinite(high)):
            flat = tensor.reshape(len(tensor), -1)
            rows = (~torch.isfinite(flat)).any(1).nonzero().flatten().tolist()
            raise NonFiniteWeightsError(
                f"{name} holds NaN or infinity in {len(rows)} of {len(tensor)} rows, the first "
                f"row {rows[0]}; the checkpoint is damaged or its training diverged"
            )
        if max(-float(low), float(high)) > LARGEST_PLAUSIBLE:
            suspicious.append(name)
    if suspicious:
        warnings.warn(
            SuspiciousWeightsWarning(
                f"weights beyond {LARGEST_PLAUSIBLE:g} in {', '.join(suspicious)}: a trained "
                "encoder has none, a damaged file does; compare the file with its source",
                names=suspicious,
            ),
            stacklevel=5,
        )


def _check_whole(tensors: dict[str, Tensor]) -> None:
    for name, tensor in tensors.items():
        if tensor.dtype != torch.int8:
            raise CheckpointFileError(
                f"{name} is {tensor.dtype}; config.json says that it is quantized to int8"
            )


def check_overflow(state: dict[str, Tensor], dtype: torch.dtype) -> None:
    """Refuse weights that the chosen type cannot hold; they were finite in the file."""
    if dtype != torch.float16:
        return
    for name, tensor in state.items():
        if not torch.isfinite(tensor).all():
            raise NonFiniteWeightsError(
                f"{name} has weights beyond float16's 65504; load it as float32 or bfloat16"
            )


def _listed(names: list[str], *, most: int = 12) -> str:
    if not names:
        return "none"
    shown = ", ".join(names[:most])
    return shown if len(names) <= most else f"{shown} and {len(names) - most} more"
