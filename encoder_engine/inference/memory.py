"""Memory for the extension: aligned arrays and their addresses."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    import numpy.typing as npt

    from encoder_engine.families.checkpoints.arrays import Array

__all__ = ["address", "aligned_bytes"]

# A cache line, and the widest vector of any instruction set.
ALIGNMENT = 64


def aligned_bytes(count: int) -> npt.NDArray[np.uint8]:
    """Return uninitialised memory of ``count`` bytes that begins at a cache line."""
    whole = np.empty(count + ALIGNMENT, dtype=np.uint8)
    first = -address(whole) % ALIGNMENT
    return whole[first : first + count]


def address(array: Array | None) -> int:
    """Return the address of a contiguous array's first element; 0 for None."""
    if array is None:
        return 0
    place: tuple[int, Any] = array.__array_interface__["data"]
    return place[0]
