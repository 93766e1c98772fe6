"""Layer and RMS norm by the Triton kernels, as one traceable, differentiable PyTorch operator."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from ..common.dropout_seed import draw_seed
from ..common.layout import contiguous
from .backward import layer_norm_backward
from .forward import layer_norm_forward

if TYPE_CHECKING:
    Context = Any


@torch.library.custom_op("encoder_engine::layer_norm", mutates_args=())
def _forward(
    input_TD: Tensor,
    residual_TD: Tensor | None,
    weight_D: Tensor,
    bias_D: Tensor | None,
    seed: Tensor | None,
    epsilon: float,
    dropout: float,
    keeps_sum: bool,
    centred: bool,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    return layer_norm_forward(
        input_TD.contiguous(),
        contiguous(residual_TD),
        contiguous(weight_D),
        contiguous(bias_D),
        seed,
        epsilon,
        dropout,
        keeps_sum=keeps_sum,
        centred=centred,
    )


@_forward.register_fake
def _(
    input_TD: Tensor,
    residual_TD: Tensor | None,
    weight_D: Tensor,
    bias_D: Tensor | None,
    seed: Tensor | None,
    epsilon: float,
    dropout: float,
    keeps_sum: bool,
    centred: bool,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    output = torch.empty_like(input_TD, memory_format=torch.contiguous_format)
    kept = keeps_sum and (residual_TD is not None or seed is not None)
    summed = torch.empty_like(output) if kept else output.new_empty(0)
    rstd = output.new_empty(output.shape[0], dtype=torch.float32)
    mean = torch.empty_like(rstd) if centred else rstd.new_empty(0)
    return output, summed, mean, rstd


@torch.library.custom_op("encoder_engine::layer_norm_backward", mutates_args=())
def _backward(
    grad_output_TD: Tensor,
    joining_TD: Tensor | None,
    summed_TD: Tensor,
    weight_D: Tensor,
    mean_T: Tensor,
    rstd_T: Tensor,
    seed: Tensor | None,
    dropout: float,
    has_bias: bool,
    centred: bool,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    return layer_norm_backward(
        grad_output_TD.contiguous(),
        contiguous(joining_TD),
        summed_TD.contiguous(),
        contiguous(weight_D),
        mean_T,
        rstd_T,
        seed,
        dropout,
        has_bias=has_bias,
        centred=centred,
    )


@_backward.register_fake
def _(
    grad_output_TD: Tensor,
    joining_TD: Tensor | None,
    summed_TD: Tensor,
    weight_D: Tensor,
    mean_T: Tensor,
    rstd_T: Tensor,
    seed: Tensor | None,
    dropout: float,
    has_bias: bool,
    centred: bool,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    grad = torch.empty_like(summed_TD, memory_format=torch.contiguous_format)
    other = torch.empty_like(grad) if seed is not None else grad.new_empty(0)
    grad_weight = grad.new_empty(grad.shape[1], dtype=torch.float32)
    first, second = (other, grad) if seed is not None else (grad, other)
    grad_bias = torch.empty_like(grad_weight) if has_bias else grad_weight.new_empty(0)
    return first, second, grad_weight, grad_bias


def _setup_context(ctx: Context, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
    input_TD, residual_TD, weight_D, bias_D, seed, _, dropout, keeps_sum, centred = inputs
    _, summed, mean, rstd = output
    changed = residual_TD is not None or seed is not None
    assert keeps_sum or not changed, "backward reads the sum"
    ctx.save_for_backward(summed if changed else input_TD, weight_D, mean, rstd, seed)
    ctx.dropout = dropout
    ctx.centred = centred
    ctx.bias_dtype = None if bias_D is None else bias_D.dtype
    ctx.has_residual = residual_TD is not None
    ctx.changed = changed
    ctx.set_materialize_grads(False)


def _differentiate(
    ctx: Context, grad_output: Tensor | None, joining: Tensor | None, *_: Tensor | None
) -> tuple[Any, ...]:
    summed, weight, mean, rstd, seed = ctx.saved_tensors
    grad_input, grad_summed, grad_weight, grad_bias = _backward(
        torch.zeros_like(summed) if grad_output is None else grad_output,
        joining if ctx.changed else None,
        summed,
        weight,
        mean,
        rstd,
        seed,
        ctx.dropout,
        ctx.bias_dtype is not None,
        ctx.centred,
    )
    grad_residual = None
    if ctx.has_residual:
        grad_residual = grad_summed if seed is not None else grad_input
    bias = None if ctx.bias_dtype is None else grad_bias.to(ctx.bias_dtype)
    return grad_input, grad_residual, grad_weight.to(weight.dtype), bias, *(None,) * 5


_forward.register_autograd(_differentiate, setup_context=_setup_context)


def layer_norm(
    input_TD: Tensor, weight_D: Tensor, bias_D: Tensor | None, **options: Any
) -> tuple[Tensor, Tensor | None]:
    """Implement :func:`encoder_engine.ops.layer_norm` by the Triton kernels."""
    return _norm(input_TD, weight_D, bias_D, centred=True, **options)


def rms_norm(input_TD: Tensor, weight_D: Tensor, **options: Any) -> tuple[Tensor, Tensor | None]:
    """Implement :func:`encoder_engine.ops.rms_norm` by the Triton kernels."""
    return _norm(input_TD, weight_D, None, centred=False, **options)


def _norm(
    input_TD: Tensor,
    weight_D: Tensor,
    bias_D: Tensor | None,
    *,
    residual_TD: Tensor | None,
    epsilon: float,
    dropout: float,
    return_sum: bool,
    centred: bool,
) -> tuple[Tensor, Tensor | None]:
    if residual_TD is not None:
        # Under autocast on a CPU they may differ.
        dtype = torch.promote_types(input_TD.dtype, residual_TD.dtype)
        input_TD, residual_TD = input_TD.to(dtype), residual_TD.to(dtype)
    seed = draw_seed(input_TD) if dropout > 0.0 else None
    tensors = (input_TD, residual_TD, weight_D, bias_D)
    trains = torch.is_grad_enabled() and any(t is not None and t.requires_grad for t in tensors)
    output, summed, _, _ = _forward(
        *tensors, seed, epsilon, dropout, keeps_sum=return_sum or trains, centred=centred
    )
    if not return_sum:
        return output, None
    return output, input_TD if residual_TD is None and seed is None else summed
