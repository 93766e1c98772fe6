"""Packed attention by the C++ extension with dropout and gradients."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from encoder_engine import _native
from encoder_engine.ops.native import kept
from encoder_engine.ops.native.rows import address, draw_dropout, heads_address, side_by_side

if TYPE_CHECKING:
    from encoder_engine.kernels.attention.terms import Terms
    from encoder_engine.packing import Sequences

__all__ = ["attend_for_training"]

NO_ROWS = (0, 0, 0)


def attend_for_training(
    query_MHD: Tensor, key_TKD: Tensor, value_TKD: Tensor, sequences: Sequences, terms: Terms
) -> Tensor:
    """Compute ``ops.attention`` with gradients, without disentangled terms and global rows."""
    output: Tensor = _Attention.apply(  # type: ignore[no-untyped-call]
        *(query_MHD, key_TKD, value_TKD, terms.bias_HR), sequences, terms
    )
    return output


class _Attention(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        query_MHD: Tensor,
        key_TKD: Tensor,
        value_TKD: Tensor,
        bias_HR: Tensor | None,
        sequences: Sequences,
        terms: Terms,
    ) -> Tensor:
        dtype = query_MHD.dtype
        query, key, value = (side_by_side(x.to(dtype)) for x in (query_MHD, key_TKD, value_TKD))
        output_MHD = kept.empty(*query.shape, dtype=dtype)
        statistics = kept.empty(*query.shape[:2], dtype=torch.float32)
        ctx.sequences, ctx.terms = sequences, terms._replace(bias_HR=None)
        ctx.dropout = draw_dropout(terms.dropout)
        ctx.save_for_backward(query, key, value, bias_HR, output_MHD, statistics)
        ctx.dtypes = [x.dtype for x in (query_MHD, key_TKD, value_TKD)]
        _run(ctx, query, key, value, bias_HR, output_MHD, statistics)
        return output_MHD

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad_MHD: Tensor) -> tuple[Tensor | None, ...]:
        query, key, value, bias_HR, output_MHD, statistics = ctx.saved_tensors
        grads = grad_MHD.to(query.dtype).contiguous()
        if ctx.terms.query_rows is None:
            # Side by side, as query, key and value of one projection are.
            heads = [x.shape[1] for x in (query, key, value)]
            whole = kept.empty(len(query), sum(heads), query.shape[2], dtype=query.dtype)
            found = torch.split(whole, heads, dim=1)
        else:
            found = tuple(kept.empty_like(x) for x in (query, key, value))
        grad_bias = None
        if ctx.needs_input_grad[3]:
            grad_bias = torch.empty(bias_HR.shape, dtype=torch.float32)
        gradients = (grads.data_ptr(), *(heads_address(x) for x in found), address(grad_bias))
        _run(ctx, query, key, value, bias_HR, output_MHD, statistics, gradients)
        wanted = zip(found, ctx.needs_input_grad[:3], ctx.dtypes, strict=True)
        return (
            *(x.to(dtype) if wants else None for x, wants, dtype in wanted),
            None if grad_bias is None else grad_bias.to(bias_HR.dtype),
            *(None, None),
        )


def _run(
    ctx: Any,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    bias_HR: Tensor | None,
    output: Tensor,
    statistics: Tensor,
    gradients: tuple[Any, ...] = (0, NO_ROWS, NO_ROWS, NO_ROWS, 0),
) -> None:
    terms, chosen = ctx.terms, ctx.terms.query_rows
    # Named, so that they live until the call has returned.
    bias = None if bias_HR is None else bias_HR.detach().float().contiguous()
    slopes = None if terms.slopes_H is None else terms.slopes_H.contiguous()
    cu_seqlens = ctx.sequences.cu_seqlens.contiguous()
    rows = None if chosen is None else chosen.rows.to(torch.int32).contiguous()
    cu_queries = None if chosen is None else chosen.within.cu_seqlens.contiguous()
    window = -1 if terms.window is None else terms.window
    reach = 0 if bias is None else bias.shape[1] // 2
    _native.attend_for_training(
        query.dtype == torch.bfloat16,
        *(heads_address(query), heads_address(key), heads_address(value)),
        *(output.data_ptr(), statistics.data_ptr()),
        *(cu_seqlens.data_ptr(), len(cu_seqlens) - 1),
        *(query.shape[1], key.shape[1], query.shape[2]),
        (
            *(terms.scale, window, terms.causal, address(slopes), address(bias), reach),
            *(address(rows), address(cu_queries)),
        ),
        ctx.dropout,
        gradients,
        torch.get_num_threads(),
    )
