"""The dense layer in 8-bit integers by oneDNN, which multiplies uint8 rows by int8 weights."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

import torch
import torch.nn.functional as F  # noqa: N812

from encoder_engine.ops.aten.quantize import quantize_rows

if TYPE_CHECKING:
    from collections.abc import Iterator

    from torch import Tensor

    from encoder_engine.ops.weights import QuantizedWeight

# The zero point.
ZERO = 128
# Rows whose int32 sums stay in a core's L2 cache between the product and its epilogue.
CHUNK_ROWS = 512
# Terms of a sum that float32 holds exactly: 1024 * 128 * 127 < 2^24.
EXACT_TERMS = 1024


@cache
def _multiplies_bytes() -> bool:
    """Return whether oneDNN's sums of byte products are exact on this processor: it has VNNI.

    Without VNNI (or AMX), pairs of products are summed in 16 bits, which saturate.
    """
    return torch.backends.mkldnn.is_available() and torch.cpu._is_vnni_supported()  # type: ignore[no-untyped-call]


def pack(weight_NK: Tensor) -> Tensor:
    """Pack int8 [N, K] as [K, N] in oneDNN's order; a plain transpose without VNNI."""
    if not _multiplies_bytes():
        return weight_NK.T
    content: Tensor = torch.ops.onednn.qlinear_prepack(weight_NK, None)
    return content


def unpack(content_KN: Tensor, _shape: tuple[int, int]) -> Tensor:
    """Return the int8 weight [N, K] that :func:`pack` was given."""
    plain = content_KN.to_dense() if content_KN.is_mkldnn else content_KN
    return plain.T.contiguous()


def _chunks(input_TK: Tensor, weight: QuantizedWeight) -> Iterator[tuple[slice, Tensor]]:
    """Yield slices of the input's rows, each with its ``(input - 128) @ weight.T``, float32."""
    input_TK = input_TK.contiguous()
    content = weight.content_for("aten")
    for start in range(0, len(input_TK), CHUNK_ROWS):
        rows = slice(start, start + CHUNK_ROWS)
        yield rows, _gemm(input_TK[rows], content, weight.scale_N)


def quantized_linear(
    input_TK: Tensor,
    scale_T: Tensor,
    weight: QuantizedWeight,
    *,
    dtype: torch.dtype,
    gelu: str | None,
) -> Tensor:
    """Compute ``ops.quantized_linear`` by PyTorch's operators."""
    output_TN = torch.empty(len(input_TK), weight.shape[0], dtype=dtype)
    for rows, sums_tN in _chunks(input_TK, weight):
        output_TN[rows] = _finish(sums_tN, scale_T[rows], weight, gelu)
    return output_TN


def requantized_linear(
    input_TK: Tensor, scale_T: Tensor, weight: QuantizedWeight, *, gelu: str | None
) -> tuple[Tensor, Tensor]:
    """Compute ``ops.requantized_linear`` by PyTorch's operators."""
    bytes_TN = torch.empty(len(input_TK), weight.shape[0], dtype=torch.uint8)
    scales_T = torch.empty(len(input_TK))
    for rows, sums_tN in _chunks(input_TK, weight):
        result_tN = _finish(sums_tN, scale_T[rows], weight, gelu)
        bytes_TN[rows], scales_T[rows] = quantize_rows(result_tN)
    return bytes_TN, scales_T


def _finish(sums_tN: Tensor, scale_t: Tensor, weight: QuantizedWeight, gelu: str | None) -> Tensor:
    result_tN = sums_tN.mul_(scale_t[:, None])
    if weight.bias_N is not None:
        result_tN = result_tN.add_(weight.bias_N)
    return result_tN if gelu is None else F.gelu(result_tN, approximate=gelu)


def _gemm(input_tK: Tensor, content_KN: Tensor, scale_N: Tensor) -> Tensor:
    if not content_KN.is_mkldnn:
        return _exact_gemm(input_tK, content_KN).mul_(scale_N)
    zero_points = torch.zeros(len(scale_N), dtype=torch.int32)
    sums_tN: Tensor = torch.ops.onednn.qlinear_pointwise(
        *(input_tK, 1.0, ZERO, content_KN, scale_N, zero_points),
        *(None, 1.0, 0, torch.float32, "none", [], ""),
    )
    return sums_tN


def _exact_gemm(input_tK: Tensor, weight_KN: Tensor) -> Tensor:
    """Return ``(input - 128) @ weight``, float32; only the end result is rounded.

    Parts of the sum are so short that float32 holds each exactly, in any order of its terms; the
    parts are added in float64.
    """
    sums_tN = torch.zeros(len(input_tK), weight_KN.shape[1], dtype=torch.float64)
    for start in range(0, len(weight_KN), EXACT_TERMS):
        part = slice(start, start + EXACT_TERMS)
        sums_tN += (input_tK[:, part].float() - ZERO) @ weight_KN[part].float()
    return sums_tN.float()
