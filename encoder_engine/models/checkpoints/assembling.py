"""Turns a checkpoint's tensors into parameters; every name, shape and value is checked."""

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
from encoder_engine.families.facts.names import origins
from encoder_engine.models.checkpoints.stacking import stack_tensors

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from torch import Tensor

    from encoder_engine.families.facts.names import Rename
    from encoder_engine.models.checkpoints.tensors import StoredTensor

__all__ = ["Assembly", "check_tied", "drop_copy", "move_and_cast", "warn_of_suspicious"]

WEIGHT_DTYPES = (torch.float64, torch.float32, torch.float16, torch.bfloat16)
# A trained weight is of order 1; a flipped exponent bit makes it 1e9 or far more.
LARGEST_PLAUSIBLE = 1e4


def drop_copy(tensors: dict[str, StoredTensor], copy: str, original: str) -> None:
    """Drop ``copy``, a second name of the tensor ``original``; they must be equal."""
    copied = tensors.pop(copy)
    kept = tensors.setdefault(original, copied)
    if kept is not copied and not torch.equal(kept.read(), copied.read()):
        raise CheckpointFileError(
            f"{copy} should equal {original}, but they differ; the checkpoint is damaged, or "
            "its model was trained with tables of their own, which is not supported"
        )


def check_tied(copied: Tensor, tokens: Tensor, copy: str) -> None:
    """Raise :class:`CheckpointError` where a head's vocabulary is not the token embeddings."""
    if not torch.equal(copied, tokens):
        raise UnsupportedFeatureError(
            f"{copy} is another table than the token embeddings; a vocabulary of its own is not "
            "supported"
        )


class Assembly:
    """Reads a checkpoint's tensors as the model's parameters, each once, and checks its values."""

    def __init__(
        self,
        parameters: Mapping[str, Tensor],
        stored: Mapping[str, StoredTensor],
        renames: Sequence[Rename],
    ) -> None:
        """Map the checkpoint's names to parameters without reading any tensor.

        Raises :class:`TensorNamesError` and :class:`TensorShapeError` with every mismatch.
        """
        self._sources = origins(renames, parameters)
        self._stored = dict(stored)
        self._whole = {name for name, made in parameters.items() if made.dtype == torch.int8}
        # Names of tensors that were read and hold larger values than trained weights.
        self.suspicious: list[str] = []
        expected_names = {name for origin in self._sources.values() for name in origin.names}
        missing = sorted(expected_names - set(stored))
        unexpected = sorted(set(stored) - expected_names)
        if missing or unexpected:
            raise TensorNamesError(
                f"the weights and config.json do not belong together: missing {_listed(missing)}; "
                f"unexpected {_listed(unexpected)}",
                missing=missing,
                unexpected=unexpected,
            )
        mismatched = []
        for name, origin in self._sources.items():
            rows, *rest = parameters[name].shape
            expected = (rows // len(origin.names), *rest)
            mismatched += [
                (source, stored[source].shape, expected)
                for source in origin.names
                if stored[source].shape != expected
            ]
        if mismatched:
            details = "; ".join(
                f"{name} is {list(f)}, expected {list(e)}" for name, f, e in mismatched[:8]
            )
            raise TensorShapeError(
                f"{len(mismatched)} tensors do not have the shape config.json says: {details}",
                mismatched=mismatched,
            )

    def read(self, names: Iterable[str]) -> dict[str, Tensor]:
        """Read parameters in the file's dtype; each can be read once.

        Raises :class:`CheckpointFileError` for an unreadable file and
        :class:`NonFiniteWeightsError` for NaN or infinity.
        """
        return {name: self._read(name) for name in names}

    def _read(self, name: str) -> Tensor:
        origin = self._sources[name]
        tensors = {their: self._stored.pop(their).read() for their in origin.names}
        if name in self._whole:
            _check_whole(tensors)
        else:
            self.suspicious += _check_values(tensors)
        return stack_tensors(origin, tensors)


def _check_values(tensors: dict[str, Tensor]) -> list[str]:
    """Return the names of tensors with implausibly large values; raise for unusable ones."""
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
    return suspicious


def _check_whole(tensors: dict[str, Tensor]) -> None:
    for name, tensor in tensors.items():
        if tensor.dtype != torch.int8:
            raise CheckpointFileError(
                f"{name} is {tensor.dtype}; config.json says that it is quantized to int8"
            )


def move_and_cast(state: dict[str, Tensor], device: torch.device, dtype: torch.dtype) -> None:
    """Move and cast tensors one by one, so that at most one is in memory twice.

    Raises :class:`NonFiniteWeightsError` for weights that float16 cannot hold.
    """
    for name in list(state):
        state[name] = tensor = state[name].to(device=device, dtype=dtype)
        # They were finite in the file.
        if dtype == torch.float16 and not torch.isfinite(tensor).all():
            raise NonFiniteWeightsError(
                f"{name} has weights beyond float16's 65504; load it as float32 or bfloat16"
            )


def warn_of_suspicious(names: list[str], *, stacklevel: int) -> None:
    """Warn of tensors with weights larger than training produces."""
    if names:
        warnings.warn(
            SuspiciousWeightsWarning(
                f"weights beyond {LARGEST_PLAUSIBLE:g} in {', '.join(names)}: a trained "
                "encoder has none, a damaged file does; compare the file with its source",
                names=names,
            ),
            stacklevel=stacklevel,
        )


def _listed(names: list[str], *, most: int = 12) -> str:
    if not names:
        return "none"
    shown = ", ".join(names[:most])
    return shown if len(names) <= most else f"{shown} and {len(names) - most} more"
