"""Rotary position embeddings as a PyTorch operator; its derivative is the inverse rotation."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from ..common.layout import rows_apart
from .forward import rotary_forward, turn

if TYPE_CHECKING:
    Context = Any


@torch.library.custom_op("encoder_engine::rotary", mutates_args=())
def _rotate(
    query_THD: Tensor, key_TKD: Tensor, table_PD: Tensor, position_ids_T: Tensor, inverse: bool
) -> tuple[Tensor, Tensor]:
    return rotary_forward(
        rows_apart(query_THD),
        rows_apart(key_TKD),
        table_PD.contiguous(),
        position_ids_T.contiguous(),
        inverse,
    )


@_rotate.register_fake
def _(
    query_THD: Tensor, key_TKD: Tensor, table_PD: Tensor, position_ids_T: Tensor, inverse: bool
) -> tuple[Tensor, Tensor]:
    query = torch.empty_like(query_THD, memory_format=torch.contiguous_format)
    return query, torch.empty_like(key_TKD, memory_format=torch.contiguous_format)


def _setup_context(ctx: Context, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
    _, _, table_PD, position_ids_T, inverse = inputs
    ctx.save_for_backward(table_PD, position_ids_T)
    ctx.inverse = inverse


def _differentiate(ctx: Context, grad_query: Tensor, grad_key: Tensor) -> tuple[Any, ...]:
    return *_rotate(grad_query, grad_key, *ctx.saved_tensors, not ctx.inverse), None, None, None


_rotate.register_autograd(_differentiate, setup_context=_setup_context)


@torch.library.custom_op("encoder_engine::rotary_", mutates_args=("heads_THD",))
def turn_in_place(
    heads_THD: Tensor, key_heads: int, table_PD: Tensor, position_ids_T: Tensor, inverse: bool
) -> None:
    """Rotate the query's and key's heads in [T, H + 2 K, D]; the value's K heads come last."""
    query, key = heads_THD[:, : -2 * key_heads], heads_THD[:, -2 * key_heads : -key_heads]
    turn(query, key, query, key, table_PD.contiguous(), position_ids_T.contiguous(), inverse)


@turn_in_place.register_fake
def _(*_: object) -> None: ...


def rotary(
    query_THD: Tensor, key_TKD: Tensor, table_PD: Tensor, position_ids_T: Tensor
) -> tuple[Tensor, Tensor]:
    """Implement :func:`encoder_engine.ops.rotary` by the Triton kernels."""
    rotated: tuple[Tensor, Tensor] = _rotate(query_THD, key_TKD, table_PD, position_ids_T, False)
    return rotated
