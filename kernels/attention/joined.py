"""Gradients of query, key and value in one tensor, where these are heads of one projection.

Three tensors would be copied together for the backward of the projection's matrix product.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from torch import Tensor


def are_joined(query_MHD: Tensor, key_TKD: Tensor, value_TKD: Tensor) -> bool:
    """Return whether query, key and value are, in order, one tensor's heads; False in a trace."""
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
    """Return memory for the joined gradients, [T, H + 2 K, D]."""
    num_heads = query_THD.shape[1] + 2 * key_TKD.shape[1]
    return query_THD.new_empty(len(query_THD), num_heads, query_THD.shape[2])


def heads_apart(joined_THD: Tensor, key_heads: int) -> tuple[Tensor, ...]:
    """Return views of the gradients of query, key and value."""
    sizes = [joined_THD.shape[1] - 2 * key_heads, key_heads, key_heads]
    return torch.split(joined_THD, sizes, dim=1)
