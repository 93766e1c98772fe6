"""Layer and RMS normalisation by the C++ extension."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from encoder_engine import _native
from encoder_engine.ops.native.norm_gradient import Norm
from encoder_engine.ops.native.rows import address, alike, is_trained


def layer_norm(
    input_TD: Tensor, weight_D: Tensor, bias_D: Tensor | None, **options: Any
) -> tuple[Tensor, Tensor | None]:
    """Compute ``ops.layer_norm`` by the C++ extension."""
    return _normalize(input_TD, weight_D, bias_D, centred=True, **options)


def rms_norm(input_TD: Tensor, weight_D: Tensor, **options: Any) -> tuple[Tensor, Tensor | None]:
    """Compute ``ops.rms_norm`` by the C++ extension."""
    return _normalize(input_TD, weight_D, None, centred=False, **options)


def _normalize(
    input_TD: Tensor,
    weight_D: Tensor,
    bias_D: Tensor | None,
    *,
    residual_TD: Tensor | None,
    epsilon: float,
    centred: bool,
    return_sum: bool,
    dropout: float,
) -> tuple[Tensor, Tensor | None]:
    if dropout > 0.0 or is_trained(input_TD, weight_D, bias_D, residual_TD):
        trained: tuple[Tensor, Tensor | None] = Norm.apply(  # type: ignore[no-untyped-call]
            *(input_TD, weight_D, bias_D, residual_TD), epsilon, centred, return_sum, dropout
        )
        return trained
    if residual_TD is not None and residual_TD.dtype != input_TD.dtype:
        dtype = torch.promote_types(input_TD.dtype, residual_TD.dtype)
        input_TD, residual_TD = input_TD.to(dtype), residual_TD.to(dtype)
    # The operator exists for tracing; a call through it costs more than a short text's norm.
    compute = operator if torch.compiler.is_compiling() else _compute
    output_TD, sum_TD = compute(
        input_TD, weight_D, bias_D, residual_TD, epsilon, centred, return_sum
    )
    return output_TD, sum_TD if return_sum else None


def _compute(
    input_TD: Tensor,
    weight_D: Tensor,
    bias_D: Tensor | None,
    residual_TD: Tensor | None,
    epsilon: float,
    centred: bool,
    return_sum: bool,
) -> tuple[Tensor, Tensor]:
    return normalize(
        *(input_TD, weight_D, bias_D, residual_TD, epsilon), centred=centred, return_sum=return_sum
    )


def normalize(
    input_TD: Tensor,
    weight_D: Tensor,
    bias_D: Tensor | None,
    residual_TD: Tensor | None,
    epsilon: float,
    *,
    centred: bool,
    return_sum: bool,
    quantized: tuple[Tensor | None, Tensor | None] = (None, None),
) -> tuple[Tensor, Tensor]:
    """Normalise rows; return the output, and the sum of input and residual with ``return_sum``.

    ``quantized``: buffers to which the output's bytes and scales are written, if given.
    """
    num_rows, width = input_TD.shape
    dtype = input_TD.dtype
    rows, weight, bias, residual = alike(input_TD, weight_D, bias_D, residual_TD)
    output_TD = torch.empty(num_rows, width, dtype=dtype)
    sum_TD = torch.empty((num_rows if return_sum else 0), width, dtype=dtype)
    _native.normalize_rows(
        dtype == torch.bfloat16,
        *(address(rows), address(residual), address(weight), address(bias)),
        sum_TD.data_ptr() if return_sum else 0,
        output_TD.data_ptr(),
        *(address(quantized[0]), address(quantized[1])),
        *(num_rows, width),
        epsilon,
        centred,
        torch.get_num_threads(),
    )
    return output_TD, sum_TD


operator = torch.library.custom_op("encoder_engine::native_norm", mutates_args=())(_compute)


@operator.register_fake
def _(input_TD: Tensor, *others: Any) -> tuple[Tensor, Tensor]:
    (num_rows, width), return_sum = input_TD.shape, others[-1]
    sum_TD = input_TD.new_empty(num_rows if return_sum else 0, width)
    return input_TD.new_empty(num_rows, width), sum_TD
