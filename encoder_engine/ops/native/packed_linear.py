"""The dense layer in float32 and bfloat16 by the C++ extension, bias and GELU in the same pass."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from encoder_engine import _native
from encoder_engine.ops.native.activation import GELU_NAMES
from encoder_engine.ops.native.rows import address

if TYPE_CHECKING:
    from encoder_engine.ops.weights import PackedWeight


def pack(weight_NK: Tensor, bias_N: Tensor | None) -> Tensor:
    """Pack a weight and its bias, in one layout for all instruction sets."""
    rows, columns = weight_NK.shape
    row_bytes = columns * weight_NK.element_size()
    content = torch.empty(_native.panels_bytes(rows, row_bytes), dtype=torch.uint8)
    weight_NK = weight_NK.contiguous()
    bias_N = None if bias_N is None else bias_N.contiguous()
    _native.pack_linear(
        weight_NK.dtype == torch.bfloat16,
        *(weight_NK.data_ptr(), address(bias_N), rows, columns, content.data_ptr()),
    )
    return content


def unpack(content: Tensor, shape: tuple[int, int], dtype: torch.dtype) -> Tensor:
    """Return the weight, [N, K]."""
    rows, columns = shape
    plain_NK = torch.empty(shape, dtype=dtype)
    row_bytes = columns * plain_NK.element_size()
    _native.take_from_panels(content.data_ptr(), rows, row_bytes, plain_NK.data_ptr())
    return plain_NK


def packed_linear(input_TK: Tensor, weight: PackedWeight, *, gelu: str | None) -> Tensor:
    """Fulfil ``ops.packed_linear``."""
    # The operator exists for tracing; a call through it costs more than a short text's product.
    compute = operator if torch.compiler.is_compiling() else _compute
    output_TN: Tensor = compute(input_TK, weight.content_for("native"), weight.shape[0], gelu)
    return output_TN


def _compute(input_TK: Tensor, content: Tensor, width: int, gelu: str | None) -> Tensor:
    num_rows, depth = input_TK.shape
    output_TN = torch.empty(num_rows, width, dtype=input_TK.dtype)
    input_TK = input_TK.contiguous()
    _native.packed_linear(
        input_TK.dtype == torch.bfloat16,
        "none" if gelu is None else GELU_NAMES[gelu],
        *(input_TK.data_ptr(), content.data_ptr(), output_TN.data_ptr()),
        *(num_rows, depth, width, torch.get_num_threads()),
    )
    return output_TN


operator = torch.library.custom_op("encoder_engine::native_packed_linear", mutates_args=())(
    _compute
)


@operator.register_fake
def _(input_TK: Tensor, _content: Tensor, width: int, _gelu: str | None) -> Tensor:
    return input_TK.new_empty(input_TK.shape[0], width)
