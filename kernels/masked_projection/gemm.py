"""The matrix products of backward: gradients of rows, weight and bias from the logits' gradient."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from .terms import wide_dtype

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from .terms import Given, Wanted


def gradients(
    parts: Iterable[tuple[int, Tensor]],
    scale_M: Tensor,
    given: Given,
    weight_gradient_VE: Tensor | None,
    wanted: Wanted,
    multiply: Callable[..., Tensor] = torch.mm,
) -> tuple[Tensor, Tensor, Tensor]:
    """Return the gradients of hidden [M, E], weight [V, E] and bias [V], empty where not wanted.

    ``parts``: the logits' gradient [M, V] in parts (first column, [M, C]), without ``scale_M``.
    ``scale_M``: the gradient of each row's loss.
    ``weight_gradient_VE``: a buffer to which the weight's gradient is added, instead of returned.
    ``multiply``: computes a matrix product as ``torch.mm`` does.
    Sums are in float32 or wider; the bias' gradient stays in that type.
    """
    hidden_ME, weight_VE = given.hidden_ME, given.weight_VE
    dtype, wide = hidden_ME.dtype, wide_dtype(hidden_ME.dtype)
    grad_hidden = hidden_ME.new_zeros(hidden_ME.shape if wanted.hidden else 0, dtype=wide)
    returned = wanted.weight and weight_gradient_VE is None
    grad_weight = weight_VE.new_empty(weight_VE.shape if returned else 0)
    grad_bias = hidden_ME.new_empty(len(weight_VE) if wanted.bias else 0, dtype=wide)
    scaled_ME = (hidden_ME * scale_M[:, None]).to(dtype) if wanted.weight else hidden_ME
    for start, grad_MC in parts:
        columns = slice(start, start + grad_MC.shape[1])
        if wanted.hidden:
            grad_hidden += _wide_gemm(grad_MC, weight_VE[columns], multiply)
        if wanted.weight and weight_gradient_VE is not None:
            _add_gemm(weight_gradient_VE[columns], grad_MC, scaled_ME, multiply)
        elif wanted.weight:
            multiply(grad_MC.T, scaled_ME, out=grad_weight[columns])
        if wanted.bias:
            grad_bias[columns] = _column_sums(grad_MC, scale_M)
    if wanted.hidden:
        grad_hidden *= scale_M[:, None]
    return grad_hidden.to(dtype), grad_weight, grad_bias


# Rows of the weight's gradient added to the buffer at a time: bounds the temporary to 8192 x E.
BUFFER_ROWS = 8192


def _add_gemm(
    buffer_CE: Tensor, grad_MC: Tensor, scaled_ME: Tensor, multiply: Callable[..., Tensor]
) -> None:
    for start in range(0, len(buffer_CE), BUFFER_ROWS):
        rows = slice(start, start + BUFFER_ROWS)
        left = grad_MC[:, rows].T
        if left.is_cuda:
            buffer_CE[rows] += _wide_gemm(left, scaled_ME, multiply)
        else:
            # On a CPU a product of 16 bits is rounded to 16 bits.
            buffer_CE[rows] += multiply(left.to(buffer_CE.dtype), scaled_ME.to(buffer_CE.dtype))


def _wide_gemm(a: Tensor, b: Tensor, multiply: Callable[..., Tensor] = torch.mm) -> Tensor:
    """Return ``a @ b`` in float32 or wider."""
    if a.dtype == wide_dtype(a.dtype):
        return multiply(a, b)
    if a.is_cuda:
        return torch.mm(a, b, out_dtype=torch.float32)
    return multiply(a, b).float()


def _column_sums(grad_MC: Tensor, scale_M: Tensor) -> Tensor:
    """Return ``scale @ grad``; half precision splits ``scale`` into a high and a low part."""
    if grad_MC.dtype == scale_M.dtype:
        return scale_M @ grad_MC
    high = scale_M.to(grad_MC.dtype)
    low = (scale_M - high).to(grad_MC.dtype)
    return _wide_gemm(torch.stack((high, low)), grad_MC).sum(dim=0)
