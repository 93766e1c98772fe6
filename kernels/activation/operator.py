"""Bias, activation and gate as a PyTorch operator: traceable, differentiable."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from ..common.layout import contiguous
from .backward import activation_backward
from .forward import activation_forward

if TYPE_CHECKING:
    Context = Any


@torch.library.custom_op("encoder_engine::activation", mutates_args=())
def _forward(input_TG: Tensor, bias_G: Tensor | None, activation: str, gated: bool) -> Tensor:
    return activation_forward(input_TG.contiguous(), contiguous(bias_G), activation, gated=gated)


@_forward.register_fake
def _(input_TG: Tensor, bias_G: Tensor | None, activation: str, gated: bool) -> Tensor:
    return input_TG.new_empty(input_TG.shape[0], input_TG.shape[1] // (2 if gated else 1))


@torch.library.custom_op("encoder_engine::activation_backward", mutates_args=())
def _backward(
    grad_output_TF: Tensor, input_TG: Tensor, bias_G: Tensor | None, activation: str, gated: bool
) -> tuple[Tensor, Tensor]:
    return activation_backward(
        grad_output_TF.contiguous(),
        input_TG.contiguous(),
        contiguous(bias_G),
        activation,
        gated=gated,
    )


@_backward.register_fake
def _(
    grad_output_TF: Tensor, input_TG: Tensor, bias_G: Tensor | None, activation: str, gated: bool
) -> tuple[Tensor, Tensor]:
    grad = torch.empty_like(input_TG, memory_format=torch.contiguous_format)
    width = 0 if bias_G is None else input_TG.shape[1]
    return grad, grad.new_empty(width, dtype=torch.float32)


def _setup_context(ctx: Context, inputs: tuple[Any, ...], output: Tensor) -> None:
    input_TG, bias_G, *ctx.options = inputs
    ctx.save_for_backward(input_TG, bias_G)


def _differentiate(ctx: Context, grad_output: Tensor) -> tuple[Any, ...]:
    input_TG, bias_G = ctx.saved_tensors
    grad_input, grad_bias = _backward(grad_output, input_TG, bias_G, *ctx.options)
    return grad_input, None if bias_G is None else grad_bias.to(bias_G.dtype), None, None


_forward.register_autograd(_differentiate, setup_context=_setup_context)


def bias_gelu(input_TF: Tensor, bias_F: Tensor | None, *, approximate: str) -> Tensor:
    """Implement :func:`encoder_engine.ops.bias_gelu` by the Triton kernels."""
    output: Tensor = _forward(input_TF, bias_F, _gelu(approximate), gated=False)
    return output


def geglu(input_TG: Tensor, bias_G: Tensor | None, *, approximate: str) -> Tensor:
    """Implement :func:`encoder_engine.ops.geglu` by the Triton kernels."""
    output: Tensor = _forward(input_TG, bias_G, _gelu(approximate), gated=True)
    return output


def swiglu(input_TG: Tensor, bias_G: Tensor | None) -> Tensor:
    """Implement :func:`encoder_engine.ops.swiglu` by the Triton kernels."""
    output: Tensor = _forward(input_TG, bias_G, "silu", gated=True)
    return output


def _gelu(approximate: str) -> str:
    return "gelu_tanh" if approximate == "tanh" else "gelu"
