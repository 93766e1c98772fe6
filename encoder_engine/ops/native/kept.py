"""Allocates tensors of a training step in memory that is reused from step to step."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import torch

from encoder_engine import _native

if TYPE_CHECKING:
    from torch import Tensor

__all__ = ["empty", "empty_like", "zeros"]

# The C library keeps smaller blocks by itself.
LEAST_BYTES = 1 << 16


def empty(*shape: int, dtype: torch.dtype) -> Tensor:
    """Return an uninitialised CPU tensor; later tensors reuse its memory once it is freed."""
    count = math.prod(shape)
    if count * dtype.itemsize < LEAST_BYTES:
        return torch.empty(shape, dtype=dtype)
    whole = torch.frombuffer(_native.KeptMemory(count * dtype.itemsize), dtype=dtype, count=count)
    # Not a view: autograd refuses in-place changes of one that a function returns.
    found: Tensor = torch.empty(0, dtype=dtype)
    return found.set_(whole.untyped_storage(), 0, shape)  # type: ignore[call-overload, no-any-return]


def empty_like(x: Tensor) -> Tensor:
    """Allocate by :func:`empty` a contiguous tensor with the shape and the dtype of ``x``."""
    return empty(*x.shape, dtype=x.dtype)


def zeros(*shape: int, dtype: torch.dtype) -> Tensor:
    """Return a tensor of zeros, allocated by :func:`empty`."""
    return empty(*shape, dtype=dtype).zero_()
