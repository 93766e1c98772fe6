"""Bias, activation and gate of a feed-forward layer by the C++ extension."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from encoder_engine import _native
from encoder_engine.ops.native import kept
from encoder_engine.ops.native.rows import address, alike, is_trained

GELU_NAMES = {"none": "gelu", "tanh": "gelu_tanh"}


def bias_gelu(input_TF: Tensor, bias_F: Tensor | None, *, approximate: str) -> Tensor:
    """Compute ``ops.bias_gelu`` by the C++ extension."""
    return _activate(input_TF, bias_F, GELU_NAMES[approximate], False)


def geglu(input_TG: Tensor, bias_G: Tensor | None, *, approximate: str) -> Tensor:
    """Compute ``ops.geglu`` by the C++ extension."""
    return _activate(input_TG, bias_G, GELU_NAMES[approximate], True)


def swiglu(input_TG: Tensor, bias_G: Tensor | None) -> Tensor:
    """Compute ``ops.swiglu`` by the C++ extension."""
    return _activate(input_TG, bias_G, "silu", True)


def _activate(input_TG: Tensor, bias_G: Tensor | None, function: str, gated: bool) -> Tensor:
    output: Tensor
    if is_trained(input_TG, bias_G):
        output = _Activation.apply(input_TG, bias_G, function, gated)  # type: ignore[no-untyped-call]
        return output
    # The operator exists for tracing; a call through it costs more than a short text's activation.
    compute = operator if torch.compiler.is_compiling() else _compute
    output = compute(input_TG, bias_G, function, gated)
    return output


def _compute(input_TG: Tensor, bias_G: Tensor | None, function: str, gated: bool) -> Tensor:
    num_rows, width = input_TG.shape
    width = width // 2 if gated else width
    output_TF = torch.empty(num_rows, width, dtype=input_TG.dtype)
    _run(input_TG, bias_G, function, gated, output_TF)
    return output_TF


def _run(
    input_TG: Tensor, bias_G: Tensor | None, function: str, gated: bool, output_TF: Tensor
) -> None:
    rows, bias = alike(input_TG, bias_G)
    _native.activate_rows(
        input_TG.dtype == torch.bfloat16,
        *(function, gated, address(rows), address(bias), output_TF.data_ptr()),
        *(*output_TF.shape, torch.get_num_threads()),
    )


class _Activation(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, input_TG: Tensor, bias_G: Tensor | None, function: str, gated: bool
    ) -> Tensor:
        ctx.save_for_backward(input_TG, bias_G)
        ctx.function, ctx.gated = function, gated
        num_rows, width = input_TG.shape
        output_TF = kept.empty(num_rows, width // 2 if gated else width, dtype=input_TG.dtype)
        _run(input_TG, bias_G, function, gated, output_TF)
        return output_TF

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad_TF: Tensor) -> tuple[Tensor | None, ...]:
        input_TG, bias_G = ctx.saved_tensors
        wants_bias = ctx.needs_input_grad[1]
        rows, bias, grads = alike(input_TG.detach(), bias_G, grad_TF)
        assert rows is not None
        grad_input = kept.empty_like(rows)
        sums_G = torch.empty(rows.shape[1] if wants_bias else 0, dtype=torch.float32)
        _native.activation_gradient(
            rows.dtype == torch.bfloat16,
            *(ctx.function, ctx.gated, address(rows), address(bias), address(grads)),
            *(grad_input.data_ptr(), sums_G.data_ptr() if wants_bias else 0),
            *(*grad_TF.shape, torch.get_num_threads()),
        )
        grad_bias = sums_G.to(bias_G.dtype) if wants_bias else None
        return grad_input if ctx.needs_input_grad[0] else None, grad_bias, None, None


operator = torch.library.custom_op("encoder_engine::native_activation", mutates_args=())(_compute)


@operator.register_fake
def _(input_TG: Tensor, bias_G: Tensor | None, function: str, gated: bool) -> Tensor:
    num_rows, width = input_TG.shape
    return input_TG.new_empty(num_rows, width // 2 if gated else width)
