"""Attention as a PyTorch operator: traceable, differentiable, the kernels behind it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from ..common.dropout_seed import draw_seed
from ..common.layout import rows_apart
from .backward import attention_backward
from .config import Launch, forward_launch, key_launch, query_launch
from .forward import attention_forward

if TYPE_CHECKING:
    from ..common.layout import Layout

    Context = Any


def _launches(query_THD: Tensor, dropout: float) -> tuple[Launch, Launch, Launch]:
    """Choose the launch shapes of the forward kernel and of the two backward ones."""
    head_dim, itemsize, dropped = query_THD.shape[2], query_THD.element_size(), dropout > 0.0
    return (
        forward_launch(head_dim, itemsize=itemsize, dropout=dropped),
        query_launch(head_dim, itemsize=itemsize, dropout=dropped),
        key_launch(head_dim, itemsize=itemsize, dropout=dropped),
    )


@torch.library.custom_op("encoder_engine::attention", mutates_args=())
def _forward(
    query_THD: Tensor,
    key_TKD: Tensor,
    value_TKD: Tensor,
    cu_seqlens: Tensor,
    tiles: Tensor,
    query_tiles: Tensor,
    key_tiles: Tensor,
    seed: Tensor | None,
    scale: float,
    dropout: float,
) -> tuple[Tensor, Tensor]:
    return attention_forward(
        rows_apart(query_THD),
        rows_apart(key_TKD),
        rows_apart(value_TKD),
        cu_seqlens,
        tiles,
        None,
        seed,
        scale=scale,
        dropout=dropout,
        window=None,
        causal=False,
        launch=_launches(query_THD, dropout)[0],
    )


@_forward.register_fake
def _(
    query_THD: Tensor,
    key_TKD: Tensor,
    value_TKD: Tensor,
    cu_seqlens: Tensor,
    tiles: Tensor,
    query_tiles: Tensor,
    key_tiles: Tensor,
    seed: Tensor | None,
    scale: float,
    dropout: float,
) -> tuple[Tensor, Tensor]:
    output = torch.empty_like(query_THD, memory_format=torch.contiguous_format)
    num_tokens, num_heads, _ = query_THD.shape
    return output, query_THD.new_empty(num_heads, num_tokens, dtype=torch.float32)


@torch.library.custom_op("encoder_engine::attention_backward", mutates_args=())
def _backward(
    grad_output_THD: Tensor,
    query_THD: Tensor,
    key_TKD: Tensor,
    value_TKD: Tensor,
    output_THD: Tensor,
    lse_HT: Tensor,
    cu_seqlens: Tensor,
    query_tiles: Tensor,
    key_tiles: Tensor,
    seed: Tensor | None,
    scale: float,
    dropout: float,
) -> tuple[Tensor, Tensor, Tensor]:
    _, queries, keys = _launches(query_THD, dropout)
    return attention_backward(
        grad_output_THD,
        rows_apart(query_THD),
        rows_apart(key_TKD),
        rows_apart(value_TKD),
        output_THD,
        lse_HT,
        cu_seqlens,
        query_tiles,
        key_tiles,
        None,
        seed,
        scale=scale,
        dropout=dropout,
        window=None,
        causal=False,
        query_launch=queries,
        key_launch=keys,
    )


@_backward.register_fake
def _(
    grad_output_THD: Tensor,
    query_THD: Tensor,
    key_TKD: Tensor,
    value_TKD: Tensor,
    output_THD: Tensor,
    lse_HT: Tensor,
    cu_seqlens: Tensor,
    query_tiles: Tensor,
    key_tiles: Tensor,
    seed: Tensor | None,
    scale: float,
    dropout: float,
) -> tuple[Tensor, Tensor, Tensor]:
    query, key, value = (
        torch.empty_like(x, memory_format=torch.contiguous_format)
        for x in (query_THD, key_TKD, value_TKD)
    )
    return query, key, value


def _setup_context(ctx: Context, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
    query, key, value, cu_seqlens, _, query_tiles, key_tiles, seed, scale, dropout = inputs
    mixed, lse = output
    ctx.save_for_backward(query, key, value, mixed, lse, cu_seqlens, query_tiles, key_tiles, seed)
    ctx.scale, ctx.dropout = scale, dropout
    ctx.set_materialize_grads(False)


def _differentiate(ctx: Context, grad_output: Tensor, *_: Tensor | None) -> tuple[Any, ...]:
    grads = _backward(grad_output, *ctx.saved_tensors, ctx.scale, ctx.dropout)
    return (*grads, *(None,) * 7)


_forward.register_autograd(_differentiate, setup_context=_setup_context)


def attention(
    query_THD: Tensor,
    key_TKD: Tensor,
    value_TKD: Tensor,
    sequences: Layout,
    *,
    scale: float,
    dropout: float,
) -> Tensor:
    """Fulfil ``ops.attention``."""
    forward, queries, keys = _launches(query_THD, dropout)
    tiles = sequences.tiles(forward.block_rows)
    query_tiles = sequences.tiles(queries.block_rows)
    key_tiles = sequences.tiles(keys.block_keys)
    output: Tensor = _forward(
        query_THD,
        key_TKD,
        value_TKD,
        sequences.cu_seqlens,
        tiles,
        query_tiles,
        key_tiles,
        draw_seed(query_THD) if dropout > 0.0 else None,
        scale,
        dropout,
    )[0]
    return output
