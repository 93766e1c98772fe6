"""Bias, activation and gate by the C++ extension: forward, without gradients."""

from __future__ import annotations

import torch
from torch import Tensor

from encoder_engine import _native
from encoder_engine.ops.native.rows import address, alike

GELU_NAMES = {"none": "gelu", "tanh": "gelu_tanh"}


def bias_gelu(input_TF: Tensor, bias_F: Tensor | None, *, approximate: str) -> Tensor:
    """Implement ``ops.bias_gelu``."""
    return _activate(input_TF, bias_F, GELU_NAMES[approximate], False)


def geglu(input_TG: Tensor, bias_G: Tensor | None, *, approximate: str) -> Tensor:
    """Implement ``ops.geglu``."""
    return _activate(input_TG, bias_G, GELU_NAMES[approximate], True)


def swiglu(input_TG: Tensor, bias_G: Tensor | None) -> Tensor:
    """Implement ``ops.swiglu``."""
    return _activate(input_TG, bias_G, "silu", True)


def _activate(input_TG: Tensor, bias_G: Tensor | None, function: str, gated: bool) -> Tensor:
    # The operator exists for tracing; a call through it costs more than a short text's activation.
    compute = operator if torch.compiler.is_compiling() else _compute
    output: Tensor = compute(input_TG, bias_G, function, gated)
    return output


def _compute(input_TG: Tensor, bias_G: Tensor | None, function: str, gated: bool) -> Tensor:
    num_rows, width = input_TG.shape
    width = width // 2 if gated else width
    output_TF = torch.empty(num_rows, width, dtype=input_TG.dtype)
    rows, bias = alike(input_TG, bias_G)
    _native.activate_rows(
        input_TG.dtype == torch.bfloat16,
        *(function, gated, address(rows), address(bias), output_TF.data_ptr()),
        *(num_rows, width, torch.get_num_threads()),
    )
    return output_TF


operator = torch.library.custom_op("encoder_engine::native_activation", mutates_args=())(_compute)


@operator.register_fake
def _(input_TG: Tensor, bias_G: Tensor | None, function: str, gated: bool) -> Tensor:
    num_rows, width = input_TG.shape
    return input_TG.new_empty(num_rows, width // 2 if gated else width)
