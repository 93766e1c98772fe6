"""Types of the arrays that encoders and callers exchange."""

from __future__ import annotations

from typing import TypeAlias

import numpy as np
import numpy.typing as npt

__all__ = ["BatchArrays", "BoolArray", "IntArray", "LongArray"]

IntArray = npt.NDArray[np.int32]
LongArray = npt.NDArray[np.int64]
BoolArray = npt.NDArray[np.bool_]
# Ids, row starts, tokens of the first texts, offsets, word ids, the text of each row, what was cut.
BatchArrays: TypeAlias = tuple[
    IntArray,
    IntArray,
    IntArray | None,
    IntArray | None,
    IntArray | None,
    IntArray | None,
    BoolArray,
]
