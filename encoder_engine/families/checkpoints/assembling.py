"""Makes parameters of a checkpoint's tensors; checks every name, shape and value."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING, NoReturn

import numpy as np

from encoder_engine.errors import (
    CheckpointFileError,
    NonFiniteWeightsError,
    SuspiciousWeightsWarning,
    TensorNamesError,
    TensorShapeError,
    UnsupportedFeatureError,
)
from encoder_engine.families.checkpoints.arrays import (
    BFLOAT16,
    WEIGHT_DTYPES,
    blocks_of,
    dtype_name,
    largest_word,
    widen,
    words,
)
from encoder_engine.families.facts.names import origins

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence

    from encoder_engine.families.checkpoints.arrays import Array
    from encoder_engine.families.checkpoints.files import StoredTensor
    from encoder_engine.families.checkpoints.parameters import Shapes
    from encoder_engine.families.facts.names import Arrangement, Origin, Rename

__all__ = ["Assembly", "raise_of_unstored", "stack_arrays", "unstack_array", "warn_of_suspicious"]

# A trained weight is of order 1; a flipped exponent bit makes it 1e9 or far more.
LARGEST_PLAUSIBLE = 1e4


class Assembly:
    """Reads a checkpoint's tensors as a model's parameters, each once, and checks their values.

    ``shapes``: the shape of each parameter, by its name in this package.
    ``stored``: the checkpoint's tensors; ``renames``: how the names in this package map to theirs.
    ``whole``: the names of parameters that must be int8.
    ``arrangements``: the orders of rows and columns of parameters that are not plain stacks of
    equal parts, by the names in this package.
    """

    def __init__(
        self,
        shapes: Shapes,
        stored: Mapping[str, StoredTensor],
        renames: Sequence[Rename],
        *,
        whole: Collection[str] = (),
        arrangements: Mapping[str, Arrangement] | None = None,
    ) -> None:
        """Map the checkpoint's names to parameters without reading any tensor.

        Raises :class:`TensorNamesError` and :class:`TensorShapeError` with every mismatch.
        """
        self._sources = origins(renames, shapes, arrangements)
        self._stored = dict(stored)
        self._whole = frozenset(whole)
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
            total, *rest = shapes[name]
            for source, part in zip(origin.names, origin.rows_of(total), strict=True):
                expected = (part, *rest)[::-1] if origin.transposed else (part, *rest)
                if stored[source].shape != expected:
                    mismatched.append((source, stored[source].shape, expected))
        if mismatched:
            details = "; ".join(
                f"{name} is {list(f)}, expected {list(e)}" for name, f, e in mismatched[:8]
            )
            raise TensorShapeError(
                f"{len(mismatched)} tensors do not have the shape config.json says: {details}",
                mismatched=mismatched,
            )

    def has(self, name: str) -> bool:
        """Return whether the model has a parameter of this name."""
        return name in self._sources

    def read(self, names: Iterable[str]) -> dict[str, Array]:
        """Read parameters in the file's dtype; each can be read once.

        Raises :class:`CheckpointFileError` for an unreadable file or a dtype that no weight has,
        and :class:`NonFiniteWeightsError` for NaN or infinity.
        """
        return {name: self.read_one(name) for name in names}

    def read_one(self, name: str, *, mapped: bool = False, gathered: bool = False) -> Array:
        """Read one parameter; see :meth:`read`.

        ``mapped``: a parameter that a safetensors file stores as one tensor is a view of the file's
        pages, read-only. ``gathered``: few of its rows will be used, so its values are checked
        block by block from the file, without touching its mapped pages.
        """
        origin = self._sources[name]
        stored = {their: self._stored.pop(their) for their in origin.names}
        arrays = {their: one.map() if mapped else one.read() for their, one in stored.items()}
        if name in self._whole:
            _check_whole(arrays)
            return stack_arrays(origin, arrays)
        for their, array in arrays.items():
            blocks = stored[their].blocks if gathered else None
            if _is_suspicious(their, array, blocks_of(array) if blocks is None else blocks()):
                self.suspicious.append(their)
        return stack_arrays(origin, arrays)


def stack_arrays(origin: Origin, arrays: Mapping[str, Array]) -> Array:
    """Stack a checkpoint's tensors along the first dimension into one parameter."""
    parts = [arrays[name] for name in origin.names]
    if len({part.dtype for part in parts}) > 1:
        parts = [widen(part) for part in parts]
    if origin.transposed:
        parts = [np.ascontiguousarray(part.T) for part in parts]
    whole = parts[0] if len(parts) == 1 else np.concatenate(parts)
    if origin.halves_swapped:
        whole = np.concatenate(np.split(whole, 2)[::-1])
    _, order, columns = origin.arrangement
    if order is not None:
        # The row of zeros is at -1.
        zeros = np.zeros((1, *whole.shape[1:]), dtype=whole.dtype)
        whole = np.concatenate((whole, zeros))[order] if order.min() < 0 else whole[order]
    return whole if columns is None else np.ascontiguousarray(whole[:, columns])


def unstack_array(origin: Origin, parameter: Array) -> dict[str, Array]:
    """Split one parameter into a checkpoint's tensors, by name: the inverse of stacking.

    Raises :class:`UnsupportedFeatureError` for rows that the checkpoint lacks and that are not 0.
    """
    whole = parameter
    _, order, columns = origin.arrangement
    if order is not None:
        if widen(whole[order < 0]).any():
            raise_of_unstored(origin)
        whole = whole[origin.places]
    if columns is not None:
        whole = np.ascontiguousarray(whole[:, np.argsort(columns)])
    if origin.halves_swapped:
        whole = np.concatenate(np.split(whole, 2)[::-1])
    parts = np.split(whole, np.cumsum(origin.rows_of(len(whole)))[:-1])
    if origin.transposed:
        parts = [np.ascontiguousarray(part.T) for part in parts]
    return dict(zip(origin.names, parts, strict=True))


def raise_of_unstored(origin: Origin) -> NoReturn:
    """Raise :class:`UnsupportedFeatureError` for rows that must be zero and are not.

    Checkpoints of the family do not store these rows.
    """
    raise UnsupportedFeatureError(
        f"the parameter of {' and '.join(origin.names)} has further rows, which must be zero "
        "because a checkpoint of this family does not store them; some are not"
    )


def _is_suspicious(name: str, array: Array, blocks: Iterable[Array]) -> bool:
    """Return whether a tensor has implausibly large values; raise for NaN and infinity."""
    if dtype_name(array.dtype) not in WEIGHT_DTYPES:
        raise CheckpointFileError(
            f"{name} is {dtype_name(array.dtype)}; weights must be dense float64, "
            "float32, float16 or bfloat16 (a quantized checkpoint cannot be loaded)"
        )
    largest = largest_word(blocks)
    if largest >= _word(array, np.inf):
        wide = widen(array).reshape(len(array), -1)
        rows = np.flatnonzero(~np.isfinite(wide).all(axis=1))
        raise NonFiniteWeightsError(
            f"{name} holds NaN or infinity in {len(rows)} of {len(array)} rows, the first "
            f"row {rows[0]}; the checkpoint is damaged or its training diverged"
        )
    return largest > _word(array, LARGEST_PLAUSIBLE)


def _word(array: Array, number: float) -> int:
    """Return the bits of a positive ``number`` in the dtype of ``array``, as an integer."""
    if array.dtype == BFLOAT16:
        return int(words(np.array([number], np.float32))[0] >> 16)
    return int(words(np.array([number], array.dtype))[0])


def _check_whole(arrays: dict[str, Array]) -> None:
    for name, array in arrays.items():
        if array.dtype != np.int8:
            raise CheckpointFileError(
                f"{name} is {dtype_name(array.dtype)}; config.json says that it is quantized to "
                "int8"
            )


def warn_of_suspicious(names: list[str], *, stacklevel: int) -> None:
    """Warn of the tensors ``names``, if any, which hold implausibly large weights."""
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
