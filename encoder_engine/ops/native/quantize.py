"""Quantization of rows to bytes by the C++ extension."""

from __future__ import annotations

import torch
from torch import Tensor

from encoder_engine import _native
from encoder_engine.ops.native.layer_norm import normalize
from encoder_engine.ops.native.rows import address, alike


def quantize_rows(input_TD: Tensor) -> tuple[Tensor, Tensor]:
    """Compute ``ops.quantize_rows`` by the C++ extension."""
    # The operators exist for tracing; a call through one costs more than a short text's rows.
    compute = quantize_operator if torch.compiler.is_compiling() else _quantize
    quantized_TD, scale_T = compute(input_TD)
    return quantized_TD, scale_T


def layer_norm_quantized(
    input_TD: Tensor,
    weight_D: Tensor,
    bias_D: Tensor | None,
    *,
    epsilon: float,
    residual_TD: Tensor | None,
) -> tuple[Tensor, Tensor, Tensor]:
    """Compute ``ops.layer_norm_quantized`` by the C++ extension."""
    compute = norm_operator if torch.compiler.is_compiling() else _normalize_and_quantize
    output_TD, quantized_TD, scale_T = compute(input_TD, weight_D, bias_D, residual_TD, epsilon)
    return output_TD, quantized_TD, scale_T


def _empty(input_TD: Tensor) -> tuple[Tensor, Tensor]:
    num_rows, width = input_TD.shape
    return (
        input_TD.new_empty(num_rows, width, dtype=torch.uint8),
        input_TD.new_empty(num_rows, dtype=torch.float32),
    )


def _quantize(input_TD: Tensor) -> tuple[Tensor, Tensor]:
    quantized_TD, scale_T = _empty(input_TD)
    (rows,) = alike(input_TD)
    _native.quantize_rows(
        input_TD.dtype == torch.bfloat16,
        *(address(rows), quantized_TD.data_ptr(), scale_T.data_ptr()),
        *(*input_TD.shape, torch.get_num_threads()),
    )
    return quantized_TD, scale_T


def _normalize_and_quantize(
    input_TD: Tensor,
    weight_D: Tensor,
    bias_D: Tensor | None,
    residual_TD: Tensor | None,
    epsilon: float,
) -> tuple[Tensor, Tensor, Tensor]:
    quantized_TD, scale_T = _empty(input_TD)
    output_TD, _ = normalize(
        *(input_TD, weight_D, bias_D, residual_TD, epsilon),
        centred=True,
        return_sum=False,
        quantized=(quantized_TD, scale_T),
    )
    return output_TD, quantized_TD, scale_T


quantize_operator = torch.library.custom_op("encoder_engine::native_quantize", mutates_args=())(
    _quantize
)
norm_operator = torch.library.custom_op("encoder_engine::native_norm_quantized", mutates_args=())(
    _normalize_and_quantize
)


@quantize_operator.register_fake
def _(input_TD: Tensor) -> tuple[Tensor, Tensor]:
    return _empty(input_TD)


@norm_operator.register_fake
def _(input_TD: Tensor, *_: object) -> tuple[Tensor, Tensor, Tensor]:
    return input_TD.new_empty(input_TD.shape), *_empty(input_TD)
