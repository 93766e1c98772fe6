"""What the operations on rows share: tensors as the extension reads them."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch
    from torch import Tensor


def alike(first: Tensor, *others: Tensor | None) -> tuple[Tensor | None, ...]:
    """Return all in rows side by side, and in the first's dtype: under autocast they may differ."""
    dtype = first.dtype
    return first.contiguous(), *[None if x is None else _in_rows(x, dtype) for x in others]


def _in_rows(x: Tensor, dtype: torch.dtype) -> Tensor:
    # Looked at first: calls that change nothing would take as long as a short text's norm.
    return x if x.dtype == dtype and x.is_contiguous() else x.to(dtype).contiguous()


def address(x: Tensor | None) -> int:
    """Return where a tensor's elements begin; 0: there is none."""
    return 0 if x is None else x.data_ptr()
