"""Pools, normalizes, activates and projects rows by the extension.

Dimensions: T packed tokens, B texts, D features, K features in, N features out.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from encoder_engine import _native
from encoder_engine.families.checkpoints.arrays import BFLOAT16
from encoder_engine.inference.memory import address

if TYPE_CHECKING:
    import numpy.typing as npt

    from encoder_engine.families.checkpoints.arrays import Array
    from encoder_engine.inference.layers import Dense

    Rows = npt.NDArray[np.float32]

__all__ = ["activate_rows", "layer_norm_rows", "normalize_rows", "pool_rows", "project_rows"]


def pool_rows(
    rows_TD: Rows,
    cu_seqlens: npt.NDArray[np.int32],
    *,
    mode: str,
    normalized: bool = False,
    num_threads: int,
) -> Rows:
    """Pool the rows of each text to one, [B, D], bit-equal to :func:`ops.pooling` on a CPU.

    ``cu_seqlens``: first row of each text, then T: [B + 1].
    """
    rows_TD = np.ascontiguousarray(rows_TD)
    num_texts, width = len(cu_seqlens) - 1, rows_TD.shape[1]
    pooled_BD = np.empty((num_texts, width), dtype=np.float32)
    _native.pool_rows(
        *(False, mode, normalized),
        *(address(rows_TD), address(cu_seqlens), address(pooled_BD)),
        *(num_texts, width, num_threads),
    )
    return pooled_BD


def normalize_rows(rows_TD: Rows, *, num_threads: int) -> Rows:
    """Divide each row by its Euclidean norm, at least 1e-12."""
    # Each row is a text of its own, pooled by taking its first row.
    every = np.arange(len(rows_TD) + 1, dtype=np.int32)
    return pool_rows(rows_TD, every, mode="cls", normalized=True, num_threads=num_threads)


def activate_rows(rows_TD: Rows, *, function: str, num_threads: int) -> Rows:
    """Apply an activation such as ``"gelu"`` to each element: [T, D]."""
    rows_TD = np.ascontiguousarray(rows_TD)
    raised_TD = np.empty_like(rows_TD)
    _native.activate_rows(
        *(False, function, False, address(rows_TD), 0, address(raised_TD)),
        *(*rows_TD.shape, num_threads),
    )
    return raised_TD


def layer_norm_rows(
    rows_TD: Rows, weight_D: Rows, bias_D: Rows, *, epsilon: float, num_threads: int
) -> Rows:
    """Normalize each row to mean 0 and variance 1, then scale and shift it: [T, D]."""
    rows_TD = np.ascontiguousarray(rows_TD)
    normal_TD = np.empty_like(rows_TD)
    _native.normalize_rows(
        *(False, address(rows_TD), 0, address(weight_D), address(bias_D)),
        *(0, address(normal_TD), 0, 0, *rows_TD.shape, epsilon, True, num_threads),
    )
    return normal_TD


def project_rows(
    rows_TK: Array, layer: Dense, *, function: str = "none", num_threads: int
) -> Array:
    """Apply a dense layer to rows of the same dtype: [T, N].

    ``function``: an activation applied to the result. A row's result does not depend on the others.
    """
    rows_TK = np.ascontiguousarray(rows_TK)
    projected_TN = np.empty((len(rows_TK), layer.width), dtype=layer.dtype)
    _native.packed_linear(
        *(layer.dtype == BFLOAT16, function),
        *(address(rows_TK), address(layer.content), address(projected_TN)),
        *(len(rows_TK), layer.depth, layer.width, num_threads),
    )
    return projected_TN
