"""Packed attention by the C++ extension: forward, without gradients."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from encoder_engine import _native

if TYPE_CHECKING:
    from encoder_engine.kernels.attention.terms import Terms
    from encoder_engine.packing import Sequences


def attention(
    query_THD: Tensor, key_TKD: Tensor, value_TKD: Tensor, sequences: Sequences, terms: Terms
) -> Tensor:
    """Fulfil ``ops.attention``."""
    # The operator exists for tracing; a call through it costs more than a short text's attention.
    compute = operator if torch.compiler.is_compiling() else _compute
    output: Tensor = compute(
        *(query_THD, key_TKD, value_TKD, sequences.cu_seqlens),
        *(terms.scale, terms.window, terms.causal, terms.slopes_H),
    )
    return output


def _compute(
    query_THD: Tensor,
    key_TKD: Tensor,
    value_TKD: Tensor,
    cu_seqlens: Tensor,
    scale: float,
    window: int | None,
    causal: bool,
    slopes_H: Tensor | None,
) -> Tensor:
    output = torch.empty(query_THD.shape, dtype=query_THD.dtype)
    query_THD = _side_by_side(query_THD)
    # Under autocast they may be of another dtype.
    if key_TKD.dtype != query_THD.dtype or value_TKD.dtype != query_THD.dtype:
        key_TKD, value_TKD = key_TKD.to(query_THD.dtype), value_TKD.to(query_THD.dtype)
    key_TKD, value_TKD = _side_by_side(key_TKD), _side_by_side(value_TKD)
    cu_seqlens = cu_seqlens.contiguous()
    slopes_H = None if slopes_H is None else slopes_H.contiguous()
    _native.attention(
        query_THD.dtype == torch.bfloat16,
        *(query_THD.data_ptr(), query_THD.stride(0), query_THD.stride(1)),
        *(key_TKD.data_ptr(), key_TKD.stride(0), key_TKD.stride(1)),
        *(value_TKD.data_ptr(), value_TKD.stride(0), value_TKD.stride(1)),
        output.data_ptr(),
        cu_seqlens.data_ptr(),
        len(cu_seqlens) - 1,
        *(query_THD.shape[1], key_TKD.shape[1], query_THD.shape[2]),
        scale,
        -1 if window is None else window,
        causal,
        0 if slopes_H is None else slopes_H.data_ptr(),
        torch.get_num_threads(),
    )
    return output


def _side_by_side(x: Tensor) -> Tensor:
    return x if x.stride(2) == 1 else x.contiguous()


operator = torch.library.custom_op("encoder_engine::native_attention", mutates_args=())(_compute)


@operator.register_fake
def _(
    query_THD: Tensor,
    key_TKD: Tensor,
    value_TKD: Tensor,
    cu_seqlens: Tensor,
    scale: float,
    window: int | None,
    causal: bool,
    slopes_H: Tensor | None,
) -> Tensor:
    return torch.empty_like(query_THD, memory_format=torch.contiguous_format)
