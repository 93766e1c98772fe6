"""The embedding sum and norm by the C++ extension with dropout and gradients."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeAlias

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from encoder_engine import _native
from encoder_engine.ops.native import kept, shared_gradient
from encoder_engine.ops.native.norm_gradient import differentiate_norm, forward_norm
from encoder_engine.ops.native.rows import address, alike, draw_dropout

if TYPE_CHECKING:
    from encoder_engine.ops.native.rows import Dropout

__all__ = ["embed", "embed_for_training"]

# Of tokens, positions and segments: ids [T], and tables.
Ids: TypeAlias = "tuple[Tensor, Tensor | None, Tensor | None]"
Tables: TypeAlias = "tuple[Tensor, Tensor | None, Tensor | None]"
# Weight and bias.
NormWeights: TypeAlias = "tuple[Tensor | None, Tensor | None]"


def embed_for_training(
    ids: Ids,
    tables: Tables,
    norm: NormWeights,
    *,
    epsilon: float,
    token_scale_T: Tensor | None,
    dropout: float,
) -> Tensor:
    """Return the output of ``ops.embedding``, [T, E], with gradients of tables and norm."""
    output_TE: Tensor = _Embedding.apply(  # type: ignore[no-untyped-call]
        *(*tables, *norm), ids, epsilon, token_scale_T, dropout
    )
    return output_TE


def embed(
    ids: Ids,
    tables: Tables,
    norm: NormWeights,
    output_TE: Tensor,
    *,
    epsilon: float,
    token_scale_T: Tensor | None,
) -> None:
    """Write the sum of the tables' rows to ``output_TE``, normalised if there is a norm."""
    tokens, positions, segments = alike(*tables)
    token_ids, places, kinds = (_narrow(x) for x in ids)
    scales = None if token_scale_T is None else token_scale_T.contiguous()
    _native.embed_rows(
        output_TE.dtype == torch.bfloat16,
        *(address(tokens), address(token_ids), len(tables[0])),
        *(address(positions), address(places), _length(positions)),
        *(address(segments), address(kinds), _length(segments)),
        *(address(norm[0]), address(norm[1]), output_TE.data_ptr()),
        *(len(output_TE), output_TE.shape[1]),
        epsilon,
        torch.get_num_threads(),
        address(scales),
    )


class _Embedding(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        token_weight_VE: Tensor,
        position_weight_PE: Tensor | None,
        segment_weight_SE: Tensor | None,
        norm_weight_E: Tensor | None,
        norm_bias_E: Tensor | None,
        ids: Ids,
        epsilon: float,
        token_scale_T: Tensor | None,
        dropout: float,
    ) -> Tensor:
        tables = token_weight_VE, position_weight_PE, segment_weight_SE
        dtype, drawn = token_weight_VE.dtype, draw_dropout(dropout)
        sum_TE = kept.empty(len(ids[0]), token_weight_VE.shape[1], dtype=dtype)
        plain = (None, None)
        embed(ids, tables, plain, sum_TE, epsilon=epsilon, token_scale_T=token_scale_T)
        statistics, output_TE = None, sum_TE
        if norm_weight_E is not None:
            output_TE, _, statistics = forward_norm(
                *(sum_TE, norm_weight_E, norm_bias_E, None), epsilon, centred=True
            )
        saved = sum_TE if norm_weight_E is not None else None
        ctx.save_for_backward(saved, statistics, norm_weight_E, token_weight_VE)
        ctx.sizes = [None if x is None else len(x) for x in tables]
        ctx.ids, ctx.token_scale_T, ctx.dropout = ids, token_scale_T, drawn
        ctx.dtypes = dtype, None if norm_bias_E is None else norm_bias_E.dtype
        return _dropped(output_TE, drawn)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad_TE: Tensor) -> tuple[Tensor | None, ...]:
        sum_TE, statistics, norm_weight_E, token_weight_VE = ctx.saved_tensors
        dtype, bias_dtype = ctx.dtypes
        grads = _dropped(grad_TE.to(dtype).contiguous(), ctx.dropout)
        norm: list[Tensor | None] = [None, None]
        if norm_weight_E is not None:
            found = differentiate_norm(
                *(grads, None, sum_TE, statistics, norm_weight_E), input_dtype=dtype, centred=True
            )
            assert found.input_TD is not None
            grads = found.input_TD
            norm[0] = found.weight_D.to(norm_weight_E.dtype)
            norm[1] = None if bias_dtype is None else found.bias_D.to(bias_dtype)
        rows = grads.float()
        tables: list[Tensor | None] = [None, None, None]
        for place, (size, ids) in enumerate(zip(ctx.sizes, ctx.ids, strict=True)):
            if not ctx.needs_input_grad[place]:
                continue
            if place == 0 and dtype == torch.float32:
                shared = shared_gradient.find(token_weight_VE)
                if shared is not None:
                    _add_rows(shared, rows, ids, ctx.token_scale_T)
                    continue
            table = kept.zeros(size, rows.shape[1], dtype=torch.float32)
            _add_rows(table, rows, ids, ctx.token_scale_T if place == 0 else None)
            # The sums of half precision are rounded once.
            tables[place] = table.to(dtype)
        return *tables, *norm, *(None,) * 4


def _add_rows(table: Tensor, rows_TE: Tensor, ids_T: Tensor | None, scale_T: Tensor | None) -> None:
    ids, factors = _narrow(ids_T), None if scale_T is None else scale_T.contiguous()
    _native.add_table_rows(
        *(rows_TE.data_ptr(), address(ids), address(factors), table.data_ptr()),
        *(*rows_TE.shape, torch.get_num_threads()),
    )


def _dropped(x_TE: Tensor, dropout: Dropout) -> Tensor:
    if dropout[0] == 0.0:
        return x_TE
    output_TE = kept.empty_like(x_TE)
    _native.drop_features(
        x_TE.dtype == torch.bfloat16,
        *(x_TE.data_ptr(), output_TE.data_ptr(), len(x_TE), x_TE.shape[1]),
        dropout,
        torch.get_num_threads(),
    )
    return output_TE


def _narrow(ids_T: Tensor | None) -> Tensor | None:
    """Return ids as int32; ids too large for int32 become ids that no table has."""
    if ids_T is None:
        return None
    if ids_T.dtype == torch.int64:
        ids_T = ids_T.clamp(-1, torch.iinfo(torch.int32).max).to(torch.int32)
    return ids_T.contiguous()


def _length(table: Tensor | None) -> int:
    return 0 if table is None else table.shape[0]
