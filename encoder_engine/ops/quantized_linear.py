"""The dense layer in 8-bit integers: weights are quantized once, activations in each call."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from encoder_engine.errors import ImplementationError, ShapeError
from encoder_engine.ops import cpu
from encoder_engine.ops.activation import check_approximation
from encoder_engine.ops.aten.quantize import row_scales
from encoder_engine.ops.registry import (
    CallFacts,
    Implementation,
    Operation,
    check_alike,
    check_device,
    plain,
)
from encoder_engine.ops.weights import QuantizedWeight, check_terms

if TYPE_CHECKING:
    from torch import Tensor

    from encoder_engine.ops.weights import Approximation

__all__ = ["QuantizedWeight", "quantize_weight", "quantized_linear", "requantized_linear"]

# Elements of a weight quantized at a time: small temporaries are reused, large ones fragment the
# heap.
ROUNDED_AT_ONCE = 1 << 18
OUTPUT_DTYPES = {torch.float32: "float32", torch.bfloat16: "bfloat16"}


def _refuse_aten(facts: CallFacts) -> str | None:
    return None if facts.device == "cpu" else f"integers are for CPUs, this is {facts.device}"


def _operation(name: str) -> Operation:
    return Operation(
        name,
        CallFacts,
        (
            cpu.native("quantized_linear", cpu.refuse_native),
            plain("quantized_linear", _refuse_aten)[0],
            Implementation(name="reference", module="encoder_engine.kernels.linear.reference"),
        ),
    )


_QUANTIZED_LINEAR = _operation("quantized_linear")
_REQUANTIZED_LINEAR = _operation("requantized_linear")


def quantize_weight(weight_NK: Tensor, bias_N: Tensor | None = None) -> QuantizedWeight:
    """Quantize a weight [N, K] to int8, each output feature to 255 steps around zero.

    ``scale = weight.abs().amax(1) / 127; (weight / scale[:, None]).round()``

    ``bias_N``: [N] or None, kept in float32. Both are on the CPU. A feature whose weights are all
    below 2^-100 in magnitude has scale 1; one with an infinity or NaN has scale NaN, and NaN
    results. Raises :class:`ShapeError`, also for a K of 0 or beyond 131,071, where int32 sums may
    overflow, and :class:`ImplementationError` on another device.
    """
    if weight_NK.dim() != 2 or (bias_N is not None and bias_N.shape != weight_NK.shape[:1]):
        shape = None if bias_N is None else list(bias_N.shape)
        raise ShapeError(
            f"weight must be [N, K] and bias [N], got {list(weight_NK.shape)}, {shape}"
        )
    check_terms(weight_NK)
    check_alike(weight_NK, bias=bias_N)
    if weight_NK.device.type != "cpu":
        raise ImplementationError(f"weights are quantized on the CPU, not {weight_NK.device}")
    rounded_NK = weight_NK.new_empty(weight_NK.shape, dtype=torch.int8)
    scale_N = weight_NK.new_empty(len(weight_NK), dtype=torch.float32)
    num_rows = max(1, ROUNDED_AT_ONCE // weight_NK.shape[1])
    for weight_MK, rounded_MK, scale_M in zip(
        *(torch.split(whole, num_rows) for whole in (weight_NK.detach(), rounded_NK, scale_N)),
        strict=True,
    ):
        wide_MK = weight_MK.float()
        scale_M.copy_(row_scales(wide_MK))
        rounded_MK.copy_(torch.nan_to_num(wide_MK / scale_M[:, None]).round_())
    bias = None if bias_N is None else bias_N.detach().float()
    return QuantizedWeight.pack(rounded_NK, scale_N, bias)


def quantized_linear(
    input_TK: Tensor,
    scale_T: Tensor,
    weight: QuantizedWeight,
    *,
    dtype: torch.dtype = torch.float32,
    gelu: Approximation | None = None,
    implementation: str | None = None,
) -> Tensor:
    """Compute ``((input - 128) * scale) @ weight.T + bias``, and GELU of it with ``gelu``.

    ``input_TK``: uint8 [T, K], from :func:`ops.quantize_rows`.
    ``scale_T``: float32 [T], from the same function.
    Returns [T, N] in ``dtype``, float32 or bfloat16. Products and sums are exact integers: a row's
    result does not depend on the other rows. Has no gradient. Raises :class:`ShapeError`.
    """
    _check(input_TK, scale_T, weight, gelu)
    if dtype not in OUTPUT_DTYPES:
        raise ShapeError(f"dtype must be float32 or bfloat16, got {dtype}")
    function = _QUANTIZED_LINEAR.find(implementation, input_TK, dtype=OUTPUT_DTYPES[dtype])
    result: Tensor = function(input_TK, scale_T, weight, dtype=dtype, gelu=gelu)
    return result


def requantized_linear(
    input_TK: Tensor,
    scale_T: Tensor,
    weight: QuantizedWeight,
    *,
    gelu: Approximation | None = None,
    implementation: str | None = None,
) -> tuple[Tensor, Tensor]:
    """Compute :func:`quantized_linear` and quantize the result, as the next layer's input.

    Returns uint8 [T, N] and float32 [T] as :func:`ops.quantize_rows` of the float32 result would.
    Raises :class:`ShapeError`.
    """
    _check(input_TK, scale_T, weight, gelu)
    function = _REQUANTIZED_LINEAR.find(implementation, input_TK, dtype="float32")
    bytes_TN, scale_T = function(input_TK, scale_T, weight, gelu=gelu)
    return bytes_TN, scale_T


def _check(
    input_TK: Tensor, scale_T: Tensor, weight: QuantizedWeight, gelu: Approximation | None
) -> None:
    if input_TK.dim() != 2:
        raise ShapeError(f"input must be uint8 [T, K], got {list(input_TK.shape)}")
    if input_TK.shape[1] != weight.shape[1]:
        raise ShapeError(
            f"input {list(input_TK.shape)} has {input_TK.shape[1]} features, "
            f"the quantized weight {list(weight.shape)} expects {weight.shape[1]}"
        )
    if input_TK.dtype != torch.uint8 or scale_T.dtype != torch.float32:
        raise ShapeError(
            f"input must be uint8 and its scale float32, got {input_TK.dtype} and {scale_T.dtype}; "
            "ops.quantize_rows makes both"
        )
    if scale_T.shape != input_TK.shape[:1]:
        raise ShapeError(f"scale is {list(scale_T.shape)}, the input has {len(input_TK)} rows")
    check_device(input_TK, scale=scale_T)
    if gelu is not None:
        check_approximation(gelu)
