"""Prepares tensors for the extension: contiguous rows, dtypes, addresses."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch
    from torch import Tensor


def alike(first: Tensor, *others: Tensor | None) -> tuple[Tensor | None, ...]:
    """Return all tensors contiguous and in the first one's dtype: autocast may mix dtypes."""
    dtype = first.dtype
    return first.contiguous(), *[None if x is None else _in_rows(x, dtype) for x in others]


def _in_rows(x: Tensor, dtype: torch.dtype) -> Tensor:
    # Checked first: a call of .to() without effect takes as long as a short text's norm.
    return x if x.dtype == dtype and x.is_contiguous() else x.to(dtype).contiguous()


def address(x: Tensor | None) -> int:
    """Return the address of a tensor's first element; 0 for None."""
    return 0 if x is None else x.data_ptr()
