"""Packed attention by the C++ extension: forward, without gradients."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from encoder_engine import _native
from encoder_engine.ops.native.rows import address

if TYPE_CHECKING:
    from encoder_engine.kernels.attention.terms import Terms
    from encoder_engine.packing import SelectedRows, Sequences

NO_VECTORS = (0, 0, 0)


def attention(
    query_THD: Tensor, key_TKD: Tensor, value_TKD: Tensor, sequences: Sequences, terms: Terms
) -> Tensor:
    """Implement ``ops.attention``."""
    # The operator exists for tracing; a call through it costs more than a short text's attention.
    compute = operator if torch.compiler.is_compiling() else _compute
    options = (terms.scale, terms.window, terms.causal, terms.slopes_H, terms.bias_HR)
    queries = _rows(terms.query_rows)
    distances = terms.disentangled or (None, None, None)
    output: Tensor = compute(
        *(query_THD, key_TKD, value_TKD, sequences.cu_seqlens, *options),
        *(*queries, *_rows(terms.global_rows), *distances),
    )
    if terms.global_rows is None:
        return output
    # The kernel computes every query within its window: those that see everything come again.
    options = (terms.scale, None, False, terms.slopes_H, terms.bias_HR)
    if terms.query_rows is None:
        places, everywhere = terms.global_rows.rows.long(), _rows(terms.global_rows)
    elif torch.compiler.is_compiling():
        # Which queries are global is not known yet: all come again.
        places, everywhere = torch.arange(len(query_THD)), queries
    else:
        places, both = terms.query_rows.shared_with(terms.global_rows)
        everywhere = _rows(both)
    seen: Tensor = compute(
        *(query_THD[places], key_TKD, value_TKD, sequences.cu_seqlens, *options),
        *(*everywhere, None, None, *distances),
    )
    if terms.query_rows is not None and torch.compiler.is_compiling():
        is_global = torch.isin(terms.query_rows.rows, terms.global_rows.rows)
        return torch.where(is_global[:, None, None], seen, output)
    return output.index_copy(0, places, seen)


def _rows(rows: SelectedRows | None) -> tuple[Tensor | None, Tensor | None]:
    return (None, None) if rows is None else (rows.rows, rows.within.cu_seqlens)


def _compute(
    query_MHD: Tensor,
    key_TKD: Tensor,
    value_TKD: Tensor,
    cu_seqlens: Tensor,
    scale: float,
    window: int | None,
    causal: bool,
    slopes_H: Tensor | None,
    bias_HR: Tensor | None,
    query_rows: Tensor | None,
    cu_queries: Tensor | None,
    global_rows: Tensor | None,
    cu_global: Tensor | None,
    distance_keys_NHD: Tensor | None,
    distance_queries_NHD: Tensor | None,
    entries_R: Tensor | None,
) -> Tensor:
    output = torch.empty(query_MHD.shape, dtype=query_MHD.dtype)
    query_MHD = _side_by_side(query_MHD)
    # Under autocast they may be of another dtype.
    dtype = query_MHD.dtype
    if key_TKD.dtype != dtype or value_TKD.dtype != dtype:
        key_TKD, value_TKD = key_TKD.to(dtype), value_TKD.to(dtype)
    key_TKD, value_TKD = _side_by_side(key_TKD), _side_by_side(value_TKD)
    cu_seqlens = cu_seqlens.contiguous()
    slopes_H = None if slopes_H is None else slopes_H.contiguous()
    given = (
        query_MHD.dtype == torch.bfloat16,
        *(query_MHD.data_ptr(), query_MHD.stride(0), query_MHD.stride(1)),
        *(key_TKD.data_ptr(), key_TKD.stride(0), key_TKD.stride(1)),
        *(value_TKD.data_ptr(), value_TKD.stride(0), value_TKD.stride(1)),
        output.data_ptr(),
        cu_seqlens.data_ptr(),
        len(cu_seqlens) - 1,
        *(query_MHD.shape[1], key_TKD.shape[1], query_MHD.shape[2]),
        scale,
        -1 if window is None else window,
        causal,
        address(slopes_H),
        torch.get_num_threads(),
    )
    others = (bias_HR, cu_queries, cu_global, entries_R)
    if all(x is None for x in others):
        _native.attention(*given)
        return output
    # Named, so that they live until the call has returned.
    rows = [_narrow(x) for x in (query_rows, cu_queries, global_rows, cu_global, entries_R)]
    bias_HR = None if bias_HR is None else bias_HR.float().contiguous()
    vectors = [
        None if x is None else _side_by_side(x.to(dtype))
        for x in (distance_keys_NHD, distance_queries_NHD)
    ]
    _native.attention(
        *given,
        *(address(rows[0]), address(rows[1])),
        *(address(bias_HR), 0 if bias_HR is None else bias_HR.shape[1] // 2),
        *(_heads(vectors[0]), _heads(vectors[1])),
        *(address(rows[4]), 0 if entries_R is None else len(entries_R) // 2),
        *(address(rows[2]), address(rows[3])),
    )
    return output


def _narrow(x: Tensor | None) -> Tensor | None:
    return None if x is None else x.to(torch.int32).contiguous()


def _heads(x: Tensor | None) -> tuple[int, int, int]:
    return NO_VECTORS if x is None else (x.data_ptr(), x.stride(0), x.stride(1))


def _side_by_side(x: Tensor) -> Tensor:
    return x if x.stride(2) == 1 else x.contiguous()


operator = torch.library.custom_op("encoder_engine::native_attention", mutates_args=())(_compute)


@operator.register_fake
def _(query_MHD: Tensor, *_: object) -> Tensor:
    return torch.empty_like(query_MHD, memory_format=torch.contiguous_format)
