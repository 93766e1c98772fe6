"""Tensors that the architecture determines: tables of angles, slopes, distance buckets."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Self

import torch
from torch import Tensor, nn

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["Constant"]


class Constant(nn.Module):
    """A constant tensor that is not saved: integers or float32; float64 if the weights are float64.

    The constant lives on the weights' device, but is never rounded to their dtype: ``make`` builds
    the constant again whenever the weights are moved or cast.
    """

    content: Tensor
    weights_like: Tensor

    def __init__(self, make: Callable[[], Tensor]) -> None:
        super().__init__()
        self.make = make
        # An empty tensor, moved and cast with the weights, tells their device and dtype.
        self.register_buffer("weights_like", torch.empty(0, device="cpu"), persistent=False)
        self.register_buffer("content", None, persistent=False)
        self.fit(torch.device("cpu"), torch.float32)

    def forward(self) -> Tensor:
        """Return the constant tensor."""
        return self.content

    def fit(self, device: torch.device, dtype: torch.dtype) -> None:
        """Rebuild the constant for weights of this dtype on this device."""
        # The caller may make modules on the meta device, to be filled from a checkpoint.
        with torch.device("cpu"), torch.inference_mode(False):
            made = self.make()
            self.weights_like = torch.empty(0, dtype=dtype).to(device)
        if made.is_floating_point():
            made = made.to(torch.promote_types(dtype, torch.float32))
        self.content = made.to(device)

    def _apply(self, fn: Callable[..., Any], _recurse: bool = True) -> Self:
        moved = fn(self.weights_like)
        if (moved.device, moved.dtype) != (self.weights_like.device, self.weights_like.dtype):
            self.fit(moved.device, moved.dtype)
        return self
