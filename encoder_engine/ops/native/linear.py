"""The dense layer by the C++ extension, with gradients: the matrix products of training."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from encoder_engine import _native
from encoder_engine.ops.native import kept
from encoder_engine.ops.native.rows import address

if TYPE_CHECKING:
    from encoder_engine.ops.native.rows import Matrix

__all__ = ["column_sums", "linear", "multiply"]


def linear(input_TK: Tensor, weight_NK: Tensor, bias_N: Tensor | None) -> Tensor:
    """Compute ``ops.linear`` by the C++ extension, with gradients."""
    autocast = input_TK.dtype != torch.float64 and torch.is_autocast_enabled("cpu")
    dtype = torch.get_autocast_dtype("cpu") if autocast else input_TK.dtype
    return _apply(input_TK, weight_NK, bias_N, dtype)


def _apply(
    input_TK: Tensor, weight_NK: Tensor, bias_N: Tensor | None, dtype: torch.dtype
) -> Tensor:
    output_TN: Tensor = _Linear.apply(  # type: ignore[no-untyped-call]
        input_TK, weight_NK, bias_N, dtype
    )
    return output_TN


class _Linear(torch.autograd.Function):
    """The dense layer, computed in ``dtype``; each gradient has the dtype of its tensor."""

    @staticmethod
    def forward(
        ctx: Any, input_TK: Tensor, weight_NK: Tensor, bias_N: Tensor | None, dtype: torch.dtype
    ) -> Tensor:
        ctx.save_for_backward(input_TK, weight_NK)
        ctx.dtype, ctx.bias_dtype = dtype, None if bias_N is None else bias_N.dtype
        output_TN = kept.empty(len(input_TK), len(weight_NK), dtype=dtype)
        multiply(input_TK, weight_NK, output_TN, dtype=dtype, bias_N=bias_N)
        return output_TN

    @staticmethod
    def backward(ctx: Any, grad_TN: Tensor) -> tuple[Tensor | None, ...]:
        input_TK, weight_NK = ctx.saved_tensors
        if torch.is_grad_enabled():
            # To be differentiated again.
            return (
                _apply(grad_TN, weight_NK.T, None, ctx.dtype).to(input_TK.dtype)
                if ctx.needs_input_grad[0]
                else None,
                _apply(grad_TN.T, input_TK.T, None, ctx.dtype).to(weight_NK.dtype)
                if ctx.needs_input_grad[1]
                else None,
                grad_TN.sum(dim=0).to(ctx.bias_dtype) if ctx.needs_input_grad[2] else None,
                None,
            )
        grad_input = grad_weight = grad_bias = None
        if ctx.needs_input_grad[0]:
            grad_input = kept.empty_like(input_TK)
            multiply(grad_TN, weight_NK, grad_input, dtype=ctx.dtype, right_turned=True)
        if ctx.needs_input_grad[1]:
            grad_weight = kept.empty_like(weight_NK)
            multiply(
                *(grad_TN, input_TK, grad_weight),
                dtype=ctx.dtype,
                left_turned=True,
                right_turned=True,
            )
        if ctx.needs_input_grad[2]:
            grad_bias = column_sums(grad_TN).to(ctx.bias_dtype)
        return grad_input, grad_weight, grad_bias, None


def multiply(
    left: Tensor,
    right: Tensor,
    output: Tensor,
    *,
    dtype: torch.dtype,
    left_turned: bool = False,
    right_turned: bool = False,
    bias_N: Tensor | None = None,
    adds: bool = False,
) -> None:
    """Compute ``left @ right.T + bias`` into ``output``; ``adds``: add to the output instead.

    ``left``: [M, K], or with ``left_turned`` [K, M]; ``right``: [N, K] or [K, N] likewise.
    ``output``: [M, N] in float32 or bfloat16. ``dtype``: the dtype in which elements are
    multiplied; sums are in float32.
    """
    left, right = _rows(left), _rows(right)
    bias = None if bias_N is None else bias_N.detach().float().contiguous()
    num_rows, depth = (left.shape[1], left.shape[0]) if left_turned else left.shape
    _native.multiply_matrices(
        dtype == torch.bfloat16,
        *(_matrix(left), left_turned, _matrix(right), right_turned),
        *(address(bias), _matrix(output), adds),
        *(num_rows, right.shape[1] if right_turned else right.shape[0], depth),
        torch.get_num_threads(),
    )


def column_sums(rows_TN: Tensor, factors_T: Tensor | None = None) -> Tensor:
    """Return the weighted sum of rows, ``(factors[:, None] * rows).sum(0)``, float32 [N]."""
    rows_TN = _rows(rows_TN)
    sums_N = torch.empty(rows_TN.shape[1], dtype=torch.float32)
    _native.sum_columns(
        rows_TN.dtype == torch.bfloat16,
        *(rows_TN.data_ptr(), rows_TN.stride(0), address(factors_T), sums_N.data_ptr()),
        *(*rows_TN.shape, torch.get_num_threads()),
    )
    return sums_N


def _rows(x: Tensor) -> Tensor:
    return x if x.stride(1) == 1 else x.contiguous()


def _matrix(x: Tensor) -> Matrix:
    return x.dtype == torch.bfloat16, x.data_ptr(), x.stride(0)
