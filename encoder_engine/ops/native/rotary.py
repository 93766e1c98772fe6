"""Rotary position embeddings by the C++ extension."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from encoder_engine import _native
from encoder_engine.ops.native import kept
from encoder_engine.ops.native.rows import is_trained


def rotary(
    query_THD: Tensor, key_TKD: Tensor, table_PD: Tensor, position_ids_T: Tensor
) -> tuple[Tensor, Tensor]:
    """Compute ``ops.rotary`` by the C++ extension."""
    if is_trained(query_THD, key_TKD):
        found: tuple[Tensor, Tensor] = _Rotary.apply(  # type: ignore[no-untyped-call]
            query_THD, key_TKD, table_PD, position_ids_T
        )
        return found
    # The operator exists for tracing; a call through it costs more than a short text's rotation.
    compute = operator if torch.compiler.is_compiling() else _compute
    query, key = compute(query_THD, key_TKD, table_PD, position_ids_T)
    return query, key


def _compute(
    query_THD: Tensor, key_TKD: Tensor, table_PD: Tensor, position_ids_T: Tensor
) -> tuple[Tensor, Tensor]:
    table, positions = table_PD.contiguous(), position_ids_T.to(torch.int32).contiguous()
    return _rotate(query_THD, table, positions), _rotate(key_TKD, table, positions)


def _rotate(heads_THD: Tensor, table_PD: Tensor, positions_T: Tensor) -> Tensor:
    num_rows, num_heads, head_dim = heads_THD.shape
    # The heads of a row must be contiguous; rows may be apart, as those of a common projection.
    if heads_THD.stride()[1:] != (head_dim, 1):
        heads_THD = heads_THD.contiguous()
    output_THD = kept.empty(num_rows, num_heads, head_dim, dtype=heads_THD.dtype)
    _native.rotate_rows(
        heads_THD.dtype == torch.bfloat16,
        *(heads_THD.data_ptr(), heads_THD.stride(0), table_PD.data_ptr(), positions_T.data_ptr()),
        *(output_THD.data_ptr(), num_rows, num_heads * head_dim, head_dim),
        torch.get_num_threads(),
    )
    return output_THD


class _Rotary(torch.autograd.Function):
    """Rotates query and key; backward rotates the gradients back."""

    @staticmethod
    def forward(
        ctx: Any, query_THD: Tensor, key_TKD: Tensor, table_PD: Tensor, position_ids_T: Tensor
    ) -> tuple[Tensor, Tensor]:
        ctx.save_for_backward(table_PD, position_ids_T)
        return _compute(query_THD, key_TKD, table_PD, position_ids_T)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad_query: Tensor, grad_key: Tensor) -> tuple[Tensor | None, ...]:
        table_PD, position_ids_T = ctx.saved_tensors
        cosine, sine = table_PD.chunk(2, dim=1)
        back_PD = torch.cat([cosine, -sine], dim=1)
        return *_compute(grad_query, grad_key, back_PD, position_ids_T), None, None


operator = torch.library.custom_op("encoder_engine::native_rotary", mutates_args=())(_compute)


@operator.register_fake
def _(
    query_THD: Tensor, key_TKD: Tensor, table_PD: Tensor, position_ids_T: Tensor
) -> tuple[Tensor, Tensor]:
    return query_THD.new_empty(query_THD.shape), key_TKD.new_empty(key_TKD.shape)
