"""The dense layer in 8-bit integers: products by oneDNN, what follows them by the C++ extension."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from encoder_engine import _native
from encoder_engine.ops.aten.quantized_linear import chunks
from encoder_engine.ops.native.activation import GELU_NAMES
from encoder_engine.ops.native.rows import address

if TYPE_CHECKING:
    from torch import Tensor

    from encoder_engine.ops.quantized_linear import QuantizedWeight


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
    scale_T = scale_T.contiguous()
    for rows, sums_tN in chunks(input_TK, weight):
        _rescale(sums_tN, scale_T[rows], weight, gelu, output_TN[rows], None)
    return output_TN


def requantized_linear(
    input_TK: Tensor, scale_T: Tensor, weight: QuantizedWeight, *, gelu: str | None
) -> tuple[Tensor, Tensor]:
    """Fulfil ``ops.requantized_linear``."""
    bytes_TN = torch.empty(len(input_TK), weight.shape[0], dtype=torch.uint8)
    scales_T = torch.empty(len(input_TK))
    scale_T = scale_T.contiguous()
    for rows, sums_tN in chunks(input_TK, weight):
        _rescale(sums_tN, scale_T[rows], weight, gelu, bytes_TN[rows], scales_T[rows])
    return bytes_TN, scales_T


def _rescale(
    sums_tN: Tensor,
    scale_t: Tensor,
    weight: QuantizedWeight,
    gelu: str | None,
    output_tN: Tensor,
    scales_t: Tensor | None,
) -> None:
    """Write the result; with ``scales_t``, as bytes."""
    to, no_output = output_tN.data_ptr(), 0
    _native.rescale_rows(
        output_tN.dtype == torch.bfloat16,
        "none" if gelu is None else GELU_NAMES[gelu],
        *(sums_tN.data_ptr(), scale_t.data_ptr(), address(weight.bias_N)),
        *((to, no_output) if scales_t is None else (no_output, to)),
        address(scales_t),
        *(*sums_tN.shape, torch.get_num_threads()),
    )
