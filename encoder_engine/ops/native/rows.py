"""Prepares tensors for the extension: contiguity, dtypes, addresses and dropout seeds."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

import torch

if TYPE_CHECKING:
    from torch import Tensor

# Whether it is bfloat16, the address, and the elements between rows.
Matrix: TypeAlias = tuple[bool, int, int]
# Probability and seed.
Dropout: TypeAlias = tuple[float, int]


def alike(first: Tensor, *others: Tensor | None) -> tuple[Tensor | None, ...]:
    """Return all tensors contiguous and in the first one's dtype; under autocast they differ."""
    dtype = first.dtype
    return first.contiguous(), *[None if x is None else _in_rows(x, dtype) for x in others]


def _in_rows(x: Tensor, dtype: torch.dtype) -> Tensor:
    # Checked first: a call of .to() without effect takes as long as a short text's norm.
    return x if x.dtype == dtype and x.is_contiguous() else x.to(dtype).contiguous()


def is_trained(*tensors: Tensor | None) -> bool:
    """Return whether a gradient of any of the tensors may be requested."""
    return torch.is_grad_enabled() and any(x is not None and x.requires_grad for x in tensors)


def side_by_side(x: Tensor) -> Tensor:
    """Return heads, [N, H, D], with the features of each in adjacent elements."""
    return x if x.stride(2) == 1 else x.contiguous()


def heads_address(x: Tensor | None) -> tuple[int, int, int]:
    """Return the address of heads, [N, H, D], and the elements between rows and heads; or zeros."""
    return (0, 0, 0) if x is None else (x.data_ptr(), x.stride(0), x.stride(1))


def address(x: Tensor | None) -> int:
    """Return the address of a tensor's first element; 0 for None."""
    return 0 if x is None else x.data_ptr()


def draw_dropout(probability: float) -> Dropout:
    """Return (probability, seed), the seed drawn from torch's generator; (0, 0) for no dropout."""
    if probability == 0.0:
        return 0.0, 0
    return probability, int(torch.randint(2**62, ()))


def in_float32(x: Tensor | None) -> Tensor | None:
    """Return ``x`` in float32, contiguous and without gradient; None for None."""
    return None if x is None else x.detach().float().contiguous()
