"""Attention as a PyTorch operator: traceable, differentiable, the kernels behind it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import Tensor

from ..common.dropout_seed import draw_seed
from ..common.layout import rows_apart
from .backward import attention_backward
from .config import Launches, choose_launches
from .forward import attention_forward
from .terms import Terms

if TYPE_CHECKING:
    from ..common.layout import Layout

    Context = Any


class Blocks(NamedTuple):
    """Where the sequences lie, and the blocks of rows each kernel works on."""

    cu_seqlens: Tensor  # int32 [B + 1]
    forward_tiles: Tensor  # int32 [n, 2]: sequence, block
    query_tiles: Tensor
    key_tiles: Tensor


def _launches(query_THD: Tensor, dropout: float) -> Launches:
    head_dim, itemsize = query_THD.shape[2], query_THD.element_size()
    return choose_launches(head_dim, itemsize=itemsize, dropout=dropout > 0.0)


@torch.library.custom_op("encoder_engine::attention", mutates_args=())
def _forward(
    query_THD: Tensor,
    key_TKD: Tensor,
    value_TKD: Tensor,
    slopes_H: Tensor | None,
    seed: Tensor | None,
    blocks: list[Tensor],
    scale: float,
    dropout: float,
    window: int | None,
    causal: bool,
) -> tuple[Tensor, Tensor]:
    cut = Blocks(*blocks)
    return attention_forward(
        rows_apart(query_THD),
        rows_apart(key_TKD),
        rows_apart(value_TKD),
        cut.cu_seqlens,
        cut.forward_tiles,
        seed,
        Terms(scale, dropout, window, causal, slopes_H),
        _launches(query_THD, dropout).forward,
    )


@_forward.register_fake
def _(query_THD: Tensor, *_: Any) -> tuple[Tensor, Tensor]:
    output = torch.empty_like(query_THD, memory_format=torch.contiguous_format)
    lse_shape = query_THD.shape[1], query_THD.shape[0]
    return output, query_THD.new_empty(lse_shape, dtype=torch.float32)


@torch.library.custom_op("encoder_engine::attention_backward", mutates_args=())
def _backward(
    grad_output_THD: Tensor,
    output_THD: Tensor,
    lse_HT: Tensor,
    query_THD: Tensor,
    key_TKD: Tensor,
    value_TKD: Tensor,
    slopes_H: Tensor | None,
    seed: Tensor | None,
    blocks: list[Tensor],
    scale: float,
    dropout: float,
    window: int | None,
    causal: bool,
) -> tuple[Tensor, Tensor, Tensor]:
    cut = Blocks(*blocks)
    launches = _launches(query_THD, dropout)
    return attention_backward(
        grad_output_THD,
        rows_apart(query_THD),
        rows_apart(key_TKD),
        rows_apart(value_TKD),
        output_THD,
        lse_HT,
        cut.cu_seqlens,
        cut.query_tiles,
        cut.key_tiles,
        seed,
        Terms(scale, dropout, window, causal, slopes_H),
        launches,
    )


@_backward.register_fake
def _(*given: Any) -> tuple[Tensor, Tensor, Tensor]:
    query, key, value = (
        torch.empty_like(x, memory_format=torch.contiguous_format) for x in given[3:6]
    )
    return query, key, value


def _setup_context(ctx: Context, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
    query, key, value, slopes, seed, blocks, *ctx.numbers = inputs
    ctx.save_for_backward(*output, query, key, value, slopes, seed, *blocks)
    ctx.set_materialize_grads(False)


def _differentiate(ctx: Context, grad_output: Tensor, *_: Tensor | None) -> tuple[Any, ...]:
    given, blocks = ctx.saved_tensors[:7], ctx.saved_tensors[7:]
    grads = _backward(grad_output, *given, blocks, *ctx.numbers)
    return (*grads, None, None, [None] * len(blocks), *(None for _ in ctx.numbers))


_forward.register_autograd(_differentiate, setup_context=_setup_context)


def attention(
    query_THD: Tensor, key_TKD: Tensor, value_TKD: Tensor, sequences: Layout, terms: Terms
) -> Tensor:
    """Fulfil ``ops.attention``."""
    launches = _launches(query_THD, terms.dropout)
    blocks = Blocks(
        sequences.cu_seqlens,
        sequences.tiles(launches.forward.block_rows),
        sequences.tiles(launches.query.block_rows),
        sequences.tiles(launches.key.block_keys),
    )
    output: Tensor = _forward(
        query_THD,
        key_TKD,
        value_TKD,
        terms.slopes_H,
        draw_seed(query_THD) if terms.dropout > 0.0 else None,
        list(blocks),
        terms.scale,
        terms.dropout,
        terms.window,
        terms.causal,
    )[0]
    return output
