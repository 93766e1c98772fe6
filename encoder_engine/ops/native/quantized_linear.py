"""The dense layer in 8-bit integers by the C++ extension, in one pass."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from encoder_engine import _native
from encoder_engine.ops.native.activation import GELU_NAMES
from encoder_engine.ops.native.rows import address

if TYPE_CHECKING:
    from encoder_engine.ops.weights import QuantizedWeight


def pack(weight_NK: Tensor) -> Tensor:
    """Pack an int8 weight [N, K] in the kernels' layout, one for all instruction sets."""
    rows, columns = weight_NK.shape
    content = torch.empty(_native.panels_bytes(rows, columns), dtype=torch.int8)
    # Named, so that a contiguous copy lives until it is read.
    weight_NK = weight_NK.contiguous()
    _native.pack_weight(
        *(weight_NK.data_ptr(), rows, columns, content.data_ptr(), _native.default_threads())
    )
    return content


def unpack(content: Tensor, shape: tuple[int, int]) -> Tensor:
    """Return the int8 weight [N, K] that :func:`pack` was given; ``shape``: (N, K)."""
    plain_NK = torch.empty(shape, dtype=torch.int8)
    _native.take_from_panels(content.data_ptr(), *shape, plain_NK.data_ptr())
    return plain_NK


def quantized_linear(
    input_TK: Tensor,
    scale_T: Tensor,
    weight: QuantizedWeight,
    *,
    dtype: torch.dtype,
    gelu: str | None,
) -> Tensor:
    """Compute ``ops.quantized_linear`` by the C++ extension."""
    # The operators exist for tracing; a call through one costs more than a short text's product.
    compute = operator if torch.compiler.is_compiling() else _compute
    output_TN: Tensor = compute(input_TK, scale_T, *_parts(weight), gelu, dtype)
    return output_TN


def requantized_linear(
    input_TK: Tensor, scale_T: Tensor, weight: QuantizedWeight, *, gelu: str | None
) -> tuple[Tensor, Tensor]:
    """Compute ``ops.requantized_linear`` by the C++ extension."""
    compute = requantizing_operator if torch.compiler.is_compiling() else _requantize
    bytes_TN, scales_T = compute(input_TK, scale_T, *_parts(weight), gelu)
    return bytes_TN, scales_T


def _parts(weight: QuantizedWeight) -> tuple[Tensor, Tensor, Tensor | None]:
    return weight.content_for("native"), weight.scale_N, weight.bias_N


def _compute(
    input_TK: Tensor,
    scale_T: Tensor,
    content: Tensor,
    scale_N: Tensor,
    bias_N: Tensor | None,
    gelu: str | None,
    dtype: torch.dtype,
) -> Tensor:
    output_TN = torch.empty(input_TK.shape[0], scale_N.shape[0], dtype=dtype)
    _multiply(input_TK, scale_T, content, scale_N, bias_N, gelu, output_TN, None)
    return output_TN


def _requantize(
    input_TK: Tensor,
    scale_T: Tensor,
    content: Tensor,
    scale_N: Tensor,
    bias_N: Tensor | None,
    gelu: str | None,
) -> tuple[Tensor, Tensor]:
    num_rows = input_TK.shape[0]
    bytes_TN = torch.empty(num_rows, scale_N.shape[0], dtype=torch.uint8)
    scales_T = torch.empty(num_rows, dtype=torch.float32)
    _multiply(input_TK, scale_T, content, scale_N, bias_N, gelu, bytes_TN, scales_T)
    return bytes_TN, scales_T


def _multiply(
    input_TK: Tensor,
    scale_T: Tensor,
    content: Tensor,
    scale_N: Tensor,
    bias_N: Tensor | None,
    gelu: str | None,
    output_TN: Tensor,
    scales_T: Tensor | None,
) -> None:
    """Write the layer's output to ``output_TN``; if ``scales_T`` is given, as scaled bytes."""
    input_TK, scale_T, scale_N = (x.contiguous() for x in (input_TK, scale_T, scale_N))
    bias_N = None if bias_N is None else bias_N.contiguous()
    to, nowhere = output_TN.data_ptr(), 0
    _native.quantized_linear(
        output_TN.dtype == torch.bfloat16,
        "none" if gelu is None else GELU_NAMES[gelu],
        *(input_TK.data_ptr(), scale_T.data_ptr()),
        *(content.data_ptr(), scale_N.data_ptr(), address(bias_N)),
        *((to, nowhere) if scales_T is None else (nowhere, to)),
        address(scales_T),
        *(*input_TK.shape, scale_N.shape[0], torch.get_num_threads()),
    )


operator = torch.library.custom_op("encoder_engine::native_quantized_linear", mutates_args=())(
    _compute
)
requantizing_operator = torch.library.custom_op(
    "encoder_engine::native_requantized_linear", mutates_args=()
)(_requantize)


@operator.register_fake
def _(input_TK: Tensor, scale_T: Tensor, _: Tensor, scale_N: Tensor, *others: Any) -> Tensor:
    return scale_T.new_empty(input_TK.shape[0], scale_N.shape[0], dtype=others[-1])


@requantizing_operator.register_fake
def _(
    input_TK: Tensor, scale_T: Tensor, _: Tensor, scale_N: Tensor, *_others: object
) -> tuple[Tensor, Tensor]:
    num_rows = input_TK.shape[0]
    return input_TK.new_empty(num_rows, scale_N.shape[0]), scale_T.new_empty(num_rows)
