"""Checks that gold values and predictions have equal lengths and valid values."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from encoder_engine.errors import InputError

if TYPE_CHECKING:
    import numpy.typing as npt

__all__ = ["paired", "paired_scores"]


def paired(
    gold: npt.ArrayLike, predicted: npt.ArrayLike, *, num_classes: int | None = None
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Return both arrays of classes as int64 [N], of equal length, from 0 to ``num_classes - 1``.

    ``num_classes``: None: the range is not checked. Raises :class:`InputError`, which names the
    first bad row.
    """
    both = []
    for name, values in (("gold", gold), ("predicted", predicted)):
        array = np.asarray(values)
        if array.ndim != 1 or array.dtype.kind not in "iub":
            raise InputError(
                f"{name} must be one integer class per row, got {array.dtype} of shape "
                f"{array.shape}"
            )
        classes = array.astype(np.int64)
        if num_classes is not None:
            bad = np.flatnonzero((classes < 0) | (classes >= num_classes))
            if len(bad):
                row = int(bad[0])
                raise InputError(
                    f"{name} has class {classes[row]} in row {row}; classes are 0 to "
                    f"{num_classes - 1}",
                    row=row,
                )
        both.append(classes)
    _check_lengths(*both)
    return both[0], both[1]


def paired_scores(
    gold: npt.ArrayLike, predicted: npt.ArrayLike
) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]:
    """Return both arrays of scores as finite float64 [N], of equal length.

    Raises :class:`InputError`, which names the first bad row.
    """
    both = []
    for name, values in (("gold", gold), ("predicted", predicted)):
        try:
            scores = np.asarray(values, dtype=np.float64)
        except (TypeError, ValueError) as error:
            raise InputError(f"{name} must be one number per row: {error}") from error
        if scores.ndim != 1:
            raise InputError(f"{name} must be one number per row, got an array of {scores.shape}")
        bad = np.flatnonzero(~np.isfinite(scores))
        if len(bad):
            row = int(bad[0])
            raise InputError(
                f"{name} is {scores[row]} in row {row}; every score must be finite", row=row
            )
        both.append(scores)
    _check_lengths(*both)
    return both[0], both[1]


def _check_lengths(gold: npt.NDArray[np.generic], predicted: npt.NDArray[np.generic]) -> None:
    if len(gold) != len(predicted):
        raise InputError(f"there are {len(gold)} gold rows and {len(predicted)} predictions")
    if len(gold) == 0:
        raise InputError("there is no row to score")
