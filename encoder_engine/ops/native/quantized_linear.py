"""The dense layer in 8-bit integers by the C++ extension, in one pass."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from encoder_engine import _native
from encoder_engine.ops.native.activation import GELU_NAMES
from encoder_engine.ops.native.rows import address

if TYPE_CHECKING:
    from torch import Tensor

    from encoder_engine.ops.quantized_linear import QuantizedWeight


def pack(weight_NK: Tensor) -> Tensor:
    """Lay int8 [N, K] out, the same way for every instruction set."""
    rows, columns = weight_NK.shape
    content = torch.empty(_native.packed_weight_bytes(rows, columns), dtype=torch.int8)
    _native.pack_weight(weight_NK.contiguous().data_ptr(), rows, columns, content.data_ptr())
    return content


def unpack(content: Tensor, shape: tuple[int, int]) -> Tensor:
    """Return int8 [N, K]."""
    plain_NK = torch.empty(shape, dtype=torch.int8)
    _native.unpack_weight(content.data_ptr(), *shape, plain_NK.data_ptr())
    return plain_NK


def quantized_linear(
    input_TK: Tensor,
    scale_T: Tensor,
    weight: QuantizedWeight,
    *,
    dtype: torch.dtype,
    gelu: str | None,
) -> Tensor:
    """Fulfil ``ops.quantized_linear``."""
    output_TN = torch.empty(len(input_TK), weight.shape[0], dtype=dtype)
    _multiply(input_TK, scale_T, weight, gelu, output_TN, None)
    return output_TN


def requantized_linear(
    input_TK: Tensor, scale_T: Tensor, weight: QuantizedWeight, *, gelu: str | None
) -> tuple[Tensor, Tensor]:
    """Fulfil ``ops.requantized_linear``."""
    bytes_TN = torch.empty(len(input_TK), weight.shape[0], dtype=torch.uint8)
    scales_T = torch.empty(len(input_TK))
    _multiply(input_TK, scale_T, weight, gelu, bytes_TN, scales_T)
    return bytes_TN, scales_T


def _multiply(
    input_TK: Tensor,
    scale_T: Tensor,
    weight: QuantizedWeight,
    gelu: str | None,
    output_TN: Tensor,
    scales_T: Tensor | None,
) -> None:
    """Write the result; with ``scales_T``, as bytes."""
    input_TK, scale_T = input_TK.contiguous(), scale_T.contiguous()
    content, scale_N = weight.content_for("native"), weight.scale_N.contiguous()
    bias_N = None if weight.bias_N is None else weight.bias_N.contiguous()
    to, nowhere = output_TN.data_ptr(), 0
    _native.quantized_linear(
        output_TN.dtype == torch.bfloat16,
        "none" if gelu is None else GELU_NAMES[gelu],
        *(input_TK.data_ptr(), scale_T.data_ptr()),
        *(content.data_ptr(), scale_N.data_ptr(), address(bias_N)),
        *((to, nowhere) if scales_T is None else (nowhere, to)),
        address(scales_T),
        *(*input_TK.shape, weight.shape[0], torch.get_num_threads()),
    )
