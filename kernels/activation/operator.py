"""Bias and GELU as a PyTorch operator: traceable, differentiable, the kernels behind it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from .backward import bias_gelu_backward
from .forward import bias_gelu_forward

if TYPE_CHECKING:
    Context = Any


@torch.library.custom_op("encoder_engine::bias_gelu", mutates_args=())
def _forward(input_TF: Tensor, bias_F: Tensor | None, tanh: bool) -> Tensor:
    return bias_gelu_forward(input_TF.contiguous(), bias_F, tanh)


@_forward.register_fake
def _(input_TF: Tensor, bias_F: Tensor | None, tanh: bool) -> Tensor:
    return torch.empty_like(input_TF, memory_format=torch.contiguous_format)


@torch.library.custom_op("encoder_engine::bias_gelu_backward", mutates_args=())
def _backward(
    grad_output_TF: Tensor, input_TF: Tensor, bias_F: Tensor | None, tanh: bool
) -> tuple[Tensor, Tensor]:
    return bias_gelu_backward(grad_output_TF.contiguous(), input_TF.contiguous(), bias_F, tanh)


@_backward.register_fake
def _(
    grad_output_TF: Tensor, input_TF: Tensor, bias_F: Tensor | None, tanh: bool
) -> tuple[Tensor, Tensor]:
    grad = torch.empty_like(input_TF, memory_format=torch.contiguous_format)
    width = 0 if bias_F is None else input_TF.shape[1]
    return grad, grad.new_empty(width, dtype=torch.float32)


def _setup_context(ctx: Context, inputs: tuple[Any, ...], output: Tensor) -> None:
    input_TF, bias_F, tanh = inputs
    ctx.save_for_backward(input_TF, bias_F)
    ctx.tanh = tanh


def _differentiate(ctx: Context, grad_output: Tensor) -> tuple[Any, ...]:
    input_TF, bias_F = ctx.saved_tensors
    grad_input, grad_bias = _backward(grad_output, input_TF, bias_F, ctx.tanh)
    return grad_input, None if bias_F is None else grad_bias.to(bias_F.dtype), None


_forward.register_autograd(_differentiate, setup_context=_setup_context)


def bias_gelu(input_TF: Tensor, bias_F: Tensor | None, *, approximate: str) -> Tensor:
    """Fulfil ``ops.bias_gelu``."""
    output: Tensor = _forward(input_TF, bias_F, approximate == "tanh")
    return output
