"""The dense layer of training on a GPU under autocast, with gradients in the weights' own dtype.

Autocast itself multiplies in bfloat16 or float16, gets a weight's gradient in that dtype, and then
casts it: rounded once more than needed, and with a call for every weight and every bias. Here the
product that makes the gradient writes it in float32, and a bias's sum is in float32 from the start.

A training loop casts the weights once a step for all its micro-batches, in one call, by
:class:`NarrowWeights`. In other training loops, a layer casts its weight at each use.
"""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

__all__ = ["NarrowWeights", "linear"]

# Weights by id, each with its copy in autocast's dtype.
_narrow: dict[int, tuple[Tensor, Tensor]] = {}


class NarrowWeights:
    """Copies of weights in a narrower dtype, at fixed addresses that CUDA graphs can read."""

    def __init__(self, weights: Iterable[Tensor], dtype: torch.dtype) -> None:
        self._wide = list({id(weight): weight for weight in weights}.values())
        self._copies = [torch.empty_like(weight, dtype=dtype) for weight in self._wide]

    def update(self) -> None:
        """Cast the weights again; call this whenever the weights have changed."""
        if self._wide:
            with torch.no_grad():
                torch._foreach_copy_(self._copies, self._wide)

    @contextmanager
    def used(self) -> Iterator[None]:
        """Cast the weights; within the context, the process's dense layers read the copies."""
        self.update()
        pairs = zip(self._wide, self._copies, strict=True)
        own = {id(weight): (weight, copy) for weight, copy in pairs}
        _narrow.update(own)
        try:
            yield
        finally:
            for key in own:
                _narrow.pop(key, None)


def _cast(weight: Tensor, dtype: torch.dtype) -> Tensor:
    wide, copy = _narrow.get(id(weight), (None, None))
    if wide is weight and copy is not None and copy.dtype == dtype:
        return copy
    return weight.to(dtype)


def linear(input_TK: Tensor, weight_NK: Tensor, bias_N: Tensor | None) -> Tensor:
    """Compute ``ops.linear`` under autocast; the result has autocast's dtype."""
    dtype = torch.get_autocast_dtype(input_TK.device.type)
    return _apply(input_TK.to(dtype), weight_NK, bias_N)


def _apply(input_TK: Tensor, weight_NK: Tensor, bias_N: Tensor | None) -> Tensor:
    output_TN: Tensor = _Linear.apply(  # type: ignore[no-untyped-call]
        input_TK, weight_NK, bias_N
    )
    return output_TN


class _Linear(torch.autograd.Function):
    """The dense layer in the input's dtype; gradients have the dtypes of weight and bias."""

    @staticmethod
    def forward(ctx: Any, input_TK: Tensor, weight_NK: Tensor, bias_N: Tensor | None) -> Tensor:
        narrow_NK = _cast(weight_NK, input_TK.dtype)
        ctx.save_for_backward(input_TK, weight_NK, narrow_NK)
        ctx.bias_dtype = None if bias_N is None else bias_N.dtype
        with torch.autocast(input_TK.device.type, enabled=False):
            bias = None if bias_N is None else _cast(bias_N, input_TK.dtype)
            return F.linear(input_TK, narrow_NK, bias)

    @staticmethod
    def backward(ctx: Any, grad_TN: Tensor) -> tuple[Tensor | None, ...]:
        input_TK, weight_NK, narrow_NK = ctx.saved_tensors
        grad_input = grad_weight = grad_bias = None
        if ctx.needs_input_grad[0]:
            # The weight itself, where the gradient is differentiated again.
            again = torch.is_grad_enabled()
            grad_input = (
                _apply(grad_TN, weight_NK.T, None)
                if again
                else _product(grad_TN, narrow_NK, grad_TN.dtype)
            )
        if ctx.needs_input_grad[1]:
            grad_weight = _product(grad_TN.T, input_TK, weight_NK.dtype)
        if ctx.needs_input_grad[2]:
            grad_bias = grad_TN.sum(dim=0, dtype=ctx.bias_dtype)
        return grad_input, grad_weight, grad_bias


def _product(left_NT: Tensor, right_TK: Tensor, dtype: torch.dtype) -> Tensor:
    """Return ``left @ right`` in ``dtype``.

    On a GPU without gradients the product is written in ``dtype``; else it is computed in the
    operands' dtype and then cast.
    """
    if torch.is_grad_enabled() or not left_NT.is_cuda or left_NT.dtype == dtype:
        # PyTorch has products of mixed dtypes on a GPU alone, and without gradients.
        return (left_NT @ right_TK).to(dtype)
    return torch.mm(left_NT, right_TK, out_dtype=dtype)
