"""Packed attention by the C++ extension."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import Tensor

from encoder_engine import _native
from encoder_engine.ops.native.attention_gradient import attend_for_training
from encoder_engine.ops.native.rows import address, heads_address, is_trained, side_by_side

if TYPE_CHECKING:
    from encoder_engine.kernels.attention.terms import Terms
    from encoder_engine.packing import SelectedRows, Sequences

# For torch.compile: the arguments of `compute` but for statistics.
SCHEMA = (
    "(Tensor query, Tensor key, Tensor value, Tensor cu_seqlens, float scale, SymInt? window, "
    "bool causal, Tensor? slopes, Tensor? bias, Tensor? query_rows, Tensor? cu_queries, "
    "Tensor? global_rows, Tensor? cu_global, Tensor? distance_keys, Tensor? distance_queries, "
    "Tensor? entries) -> Tensor"
)


class StatisticsMemory(NamedTuple):
    """Memory from which the kernel reads marks, bool [T, C], and to which it writes statistics.

    The statistics of M queries are contiguous: values float32 [M, H, 6 + C], offsets int64 [M, H].
    """

    marks_TC: Tensor
    values_MHS: Tensor
    offsets_MH: Tensor


def attention(
    query_THD: Tensor, key_TKD: Tensor, value_TKD: Tensor, sequences: Sequences, terms: Terms
) -> Tensor:
    """Compute ``ops.attention`` by the C++ extension."""
    if terms.dropout > 0.0 or is_trained(query_THD, key_TKD, value_TKD, terms.bias_HR):
        return attend_for_training(query_THD, key_TKD, value_TKD, sequences, terms)
    # The operator exists for tracing; a call through it costs more than a short text's attention.
    attend = operator if torch.compiler.is_compiling() else compute
    output: Tensor = attend(*arguments(query_THD, key_TKD, value_TKD, sequences, terms))
    if terms.global_rows is None:
        return output
    # The kernel applies the window to every query: global ones are computed again without it.
    if terms.query_rows is None:
        places, everywhere = terms.global_rows.rows.long(), terms.global_rows
    elif torch.compiler.is_compiling():
        # A trace does not know which queries are global: all are computed again.
        places, everywhere = torch.arange(len(query_THD)), terms.query_rows
    else:
        places, everywhere = terms.query_rows.shared_with(terms.global_rows)
    unlimited = terms._replace(window=None, query_rows=everywhere, global_rows=None)
    seen: Tensor = attend(*arguments(query_THD[places], key_TKD, value_TKD, sequences, unlimited))
    if terms.query_rows is not None and torch.compiler.is_compiling():
        is_global = torch.isin(terms.query_rows.rows, terms.global_rows.rows)
        return torch.where(is_global[:, None, None], seen, output)
    return output.index_copy(0, places, seen)


def arguments(
    query_MHD: Tensor, key_TKD: Tensor, value_TKD: Tensor, sequences: Sequences, terms: Terms
) -> tuple[Any, ...]:
    """Return the arguments of :func:`compute` for a call of ``ops.attention``."""
    options = (terms.scale, terms.window, terms.causal, terms.slopes_H, terms.bias_HR)
    distances = terms.disentangled or (None, None, None)
    return (
        *(query_MHD, key_TKD, value_TKD, sequences.cu_seqlens, *options),
        *(*_rows(terms.query_rows), *_rows(terms.global_rows), *distances),
    )


def _rows(rows: SelectedRows | None) -> tuple[Tensor | None, Tensor | None]:
    return (None, None) if rows is None else (rows.rows, rows.within.cu_seqlens)


def compute(
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
    statistics: StatisticsMemory | None = None,
) -> Tensor:
    """Call the attention kernel; it also writes statistics to ``statistics``, if given."""
    output = torch.empty(query_MHD.shape, dtype=query_MHD.dtype)
    query_MHD = side_by_side(query_MHD)
    # Under autocast key and value may have another dtype.
    dtype = query_MHD.dtype
    if key_TKD.dtype != dtype or value_TKD.dtype != dtype:
        key_TKD, value_TKD = key_TKD.to(dtype), value_TKD.to(dtype)
    key_TKD, value_TKD = side_by_side(key_TKD), side_by_side(value_TKD)
    cu_seqlens = cu_seqlens.contiguous()
    slopes_H = None if slopes_H is None else slopes_H.contiguous()
    given = (
        query_MHD.dtype == torch.bfloat16,
        *heads_address(query_MHD),
        *heads_address(key_TKD),
        *heads_address(value_TKD),
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
    others = (bias_HR, cu_queries, cu_global, entries_R, statistics)
    if all(x is None for x in others):
        _native.attention(*given)
        return output
    # Named, so that they live until the call has returned.
    rows = [_narrow(x) for x in (query_rows, cu_queries, global_rows, cu_global, entries_R)]
    bias_HR = None if bias_HR is None else bias_HR.float().contiguous()
    vectors = [
        None if x is None else side_by_side(x.to(dtype))
        for x in (distance_keys_NHD, distance_queries_NHD)
    ]
    _native.attention(
        *given,
        *(address(rows[0]), address(rows[1])),
        *(address(bias_HR), 0 if bias_HR is None else bias_HR.shape[1] // 2),
        *(heads_address(vectors[0]), heads_address(vectors[1])),
        *(address(rows[4]), 0 if entries_R is None else len(entries_R) // 2),
        *(address(rows[2]), address(rows[3])),
        *_memory(statistics),
    )
    return output


def _memory(statistics: StatisticsMemory | None) -> tuple[int, ...]:
    if statistics is None:
        return ()
    marks_TC, values_MHS, offsets_MH = statistics
    places = (values_MHS.data_ptr(), offsets_MH.data_ptr())
    return (marks_TC.data_ptr(), marks_TC.shape[1], *places)


def _narrow(x: Tensor | None) -> Tensor | None:
    return None if x is None else x.to(torch.int32).contiguous()


operator = torch.library.custom_op(
    "encoder_engine::native_attention", compute, mutates_args=(), schema=SCHEMA
)


@operator.register_fake
def _(query_MHD: Tensor, *_: object) -> Tensor:
    return torch.empty_like(query_MHD, memory_format=torch.contiguous_format)
