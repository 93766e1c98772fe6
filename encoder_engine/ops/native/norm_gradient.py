"""Layer and RMS normalisation by the C++ extension with dropout and gradients."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from encoder_engine import _native
from encoder_engine.ops.native import kept
from encoder_engine.ops.native.rows import address, draw_dropout, in_float32

if TYPE_CHECKING:
    from encoder_engine.ops.native.rows import Dropout

__all__ = ["Norm", "NormGradients", "differentiate_norm", "forward_norm"]


class NormGradients(NamedTuple):
    """The gradients of a norm's input and residual, None if not requested, and weight and bias.

    Those of weight and bias are always computed, in float32. Without dropout, input and residual
    may have the same tensor.
    """

    input_TD: Tensor | None
    residual_TD: Tensor | None
    weight_D: Tensor
    bias_D: Tensor


class Norm(torch.autograd.Function):
    """Layer or RMS norm of ``dropout(input) + residual``; also returns the sum if asked to."""

    @staticmethod
    def forward(  # noqa: D102
        ctx: Any,
        input_TD: Tensor,
        weight_D: Tensor,
        bias_D: Tensor | None,
        residual_TD: Tensor | None,
        epsilon: float,
        centred: bool,
        return_sum: bool,
        dropout: float,
    ) -> tuple[Tensor, Tensor | None]:
        drawn = draw_dropout(dropout)
        output_TD, sum_TD, statistics = forward_norm(
            *(input_TD, weight_D, bias_D, residual_TD), epsilon, centred=centred, dropout=drawn
        )
        ctx.save_for_backward(sum_TD, statistics, weight_D)
        ctx.centred, ctx.dropout, ctx.dtypes = (
            *(centred, drawn),
            (input_TD.dtype, None if bias_D is None else bias_D.dtype),
        )
        ctx.has_residual = residual_TD is not None
        ctx.set_materialize_grads(False)
        if not return_sum:
            return output_TD, None
        # Autograd would take an input that is returned for a view of itself.
        return output_TD, sum_TD.clone() if sum_TD is input_TD else sum_TD

    @staticmethod
    @once_differentiable
    def backward(  # noqa: D102
        ctx: Any, grad_output_TD: Tensor | None, grad_sum_TD: Tensor | None
    ) -> tuple[Tensor | None, ...]:
        sum_TD, statistics, weight_D = ctx.saved_tensors
        if grad_output_TD is None:
            if grad_sum_TD is None:
                return (None,) * 8
            grad_output_TD = torch.zeros_like(grad_sum_TD)
        wants_input, wants_weight, wants_bias, wants_residual = ctx.needs_input_grad[:4]
        input_dtype, bias_dtype = ctx.dtypes
        found = differentiate_norm(
            *(grad_output_TD, grad_sum_TD, sum_TD, statistics, weight_D),
            input_dtype=input_dtype,
            centred=ctx.centred,
            dropout=ctx.dropout,
            wants_input=wants_input,
            wants_residual=wants_residual,
        )
        return (
            found.input_TD,
            found.weight_D.to(weight_D.dtype) if wants_weight else None,
            found.bias_D.to(bias_dtype) if wants_bias else None,
            found.residual_TD,
            *(None,) * 4,
        )


def forward_norm(
    input_TD: Tensor,
    weight_D: Tensor,
    bias_D: Tensor | None,
    residual_TD: Tensor | None,
    epsilon: float,
    *,
    centred: bool,
    dropout: Dropout = (0.0, 0),
) -> tuple[Tensor, Tensor, Tensor]:
    """Return a norm's output, the sum that it normalised, and the row statistics for backward.

    The sum is the input itself, made contiguous, without residual and dropout.
    """
    dtype = input_TD.dtype
    if residual_TD is not None:
        dtype = torch.promote_types(dtype, residual_TD.dtype)
        residual_TD = residual_TD.to(dtype).contiguous()
        if dtype == torch.bfloat16 or residual_TD.dtype == input_TD.dtype:
            input_TD = input_TD.to(dtype)
    rows = input_TD.contiguous()
    num_rows, width = rows.shape
    weight, bias = in_float32(weight_D), in_float32(bias_D)
    changes = residual_TD is not None or dropout[0] > 0.0
    sum_TD = kept.empty(num_rows, width, dtype=dtype) if changes else rows
    output_TD = kept.empty(num_rows, width, dtype=dtype)
    statistics = torch.empty(num_rows, 2, dtype=torch.float32)
    _native.normalize_for_training(
        *(rows.dtype == torch.bfloat16, dtype == torch.bfloat16),
        *(rows.data_ptr(), address(residual_TD), address(weight), address(bias)),
        *(sum_TD.data_ptr() if changes else 0, output_TD.data_ptr(), statistics.data_ptr()),
        *(num_rows, width),
        epsilon,
        centred,
        dropout,
        torch.get_num_threads(),
    )
    return output_TD, sum_TD, statistics


def differentiate_norm(
    grad_output_TD: Tensor,
    grad_sum_TD: Tensor | None,
    sum_TD: Tensor,
    statistics: Tensor,
    weight_D: Tensor,
    *,
    input_dtype: torch.dtype,
    centred: bool,
    dropout: Dropout = (0.0, 0),
    wants_input: bool = True,
    wants_residual: bool = False,
) -> NormGradients:
    """Return a norm's gradients, given the gradient of its output.

    ``grad_sum_TD``: the gradient of the sum of input and residual, if that was returned too.
    ``sum_TD``, ``statistics``: as :func:`forward_norm` returned them.
    """
    grads = grad_output_TD.contiguous()
    dtype = grads.dtype
    joining = None if grad_sum_TD is None else grad_sum_TD.to(dtype).contiguous()
    num_rows, width = grads.shape
    weight = in_float32(weight_D)
    # Without dropout both gradients are the sum's.
    shared = wants_residual and dropout[0] == 0.0 and input_dtype == dtype
    residual_TD = kept.empty_like(grads) if wants_residual else None
    separate = wants_input and not shared
    input_TD = kept.empty(num_rows, width, dtype=input_dtype) if separate else None
    weight_grad, bias_grad = torch.empty(2, width, dtype=torch.float32).unbind(0)
    half = torch.bfloat16
    _native.norm_gradient(
        *(input_dtype == half, dtype == half, sum_TD.dtype == half),
        *(sum_TD.data_ptr(), statistics.data_ptr(), address(weight)),
        *(grads.data_ptr(), address(joining), address(input_TD), address(residual_TD)),
        *(weight_grad.data_ptr(), bias_grad.data_ptr()),
        *(num_rows, width),
        centred,
        dropout,
        torch.get_num_threads(),
    )
    if shared and wants_input:
        input_TD = residual_TD
    return NormGradients(input_TD, residual_TD, weight_grad, bias_grad)
