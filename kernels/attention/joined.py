"""Gradients of query, key and value in one tensor, where all three are heads of one projection.

Three tensors would have to be copied into one for the backward of the projection's matrix product.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from torch import Tensor


def are_joined(query_MHD: Tensor, key_TKD: Tensor, value_TKD: Tensor) -> bool:
    """Return whether query, key and value, in order, are one tensor's heads; False when tracing."""
    if torch.compiler.is_compiling() or len(query_MHD) != len(key_TKD):
        return False
    num_heads = query_MHD.shape[1] + 2 * key_TKD.shape[1]
    strides = (num_heads * query_MHD.shape[2], query_MHD.shape[2], 1)
    storage = query_MHD.untyped_storage()._cdata
    place = query_MHD.storage_offset()
    for part in (query_MHD, key_TKD, value_TKD):
        if part.stride() != strides or part.storage_offset() != place:
            return False
        if part.untyped_storage()._cdata != storage:
            return False
        place += part.shape[1] * part.shape[2]
    return True


def empty_joined(query_THD: Tensor, key_TKD: Tensor) -> Tensor:
    """Return memory for the gradients of query, key and value in one tensor, [T, H + 2 K, D]."""
    num_heads = query_THD.shape[1] + 2 * key_TKD.shape[1]
    return query_THD.new_empty(len(query_THD), num_heads, query_THD.shape[2])


def heads_apart(joined_THD: Tensor, key_heads: int) -> tuple[Tensor, ...]:
    """Return the views of query, key and value in a joined tensor [T, H + 2 K, D]."""
    sizes = [joined_THD.shape[1] - 2 * key_heads, key_heads, key_heads]
    return torch.split(joined_THD, sizes, dim=1)
