"""Pooling by the Triton kernels, as a traceable, differentiable PyTorch operator."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from .backward import pooling_backward
from .forward import CHUNK, pooling_forward

if TYPE_CHECKING:
    from ..common.layout import Layout

    Context = Any


@torch.library.custom_op("encoder_engine::pooling", mutates_args=())
def _forward(
    hidden_TD: Tensor, cu_seqlens: Tensor, tiles: Tensor, mode: str, normalize: bool
) -> tuple[Tensor, Tensor, Tensor]:
    return pooling_forward(
        hidden_TD.contiguous(), cu_seqlens.contiguous(), tiles, mode, normalize=normalize
    )


@_forward.register_fake
def _(
    hidden_TD: Tensor, cu_seqlens: Tensor, tiles: Tensor, mode: str, normalize: bool
) -> tuple[Tensor, Tensor, Tensor]:
    output = hidden_TD.new_empty(cu_seqlens.shape[0] - 1, hidden_TD.shape[1])
    wide = torch.empty_like(output, dtype=torch.float32)
    pooled = wide if normalize or mode == "max" else wide.new_empty(0)
    return output, pooled, torch.empty_like(wide) if mode == "max" else wide.new_empty(0)


@torch.library.custom_op("encoder_engine::pooling_backward", mutates_args=())
def _backward(
    grad_output_BD: Tensor,
    hidden_TD: Tensor,
    cu_seqlens: Tensor,
    tiles: Tensor,
    pooled_BD: Tensor,
    ties_BD: Tensor,
    mode: str,
    normalize: bool,
) -> Tensor:
    return pooling_backward(
        grad_output_BD.contiguous(),
        hidden_TD.contiguous(),
        cu_seqlens.contiguous(),
        tiles,
        pooled_BD,
        ties_BD,
        mode,
        normalize=normalize,
    )


@_backward.register_fake
def _(_: Tensor, hidden_TD: Tensor, *_others: object) -> Tensor:
    return torch.empty_like(hidden_TD, memory_format=torch.contiguous_format)


def _setup_context(ctx: Context, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
    hidden_TD, cu_seqlens, tiles, mode, normalize = inputs
    ctx.save_for_backward(hidden_TD, cu_seqlens, tiles, *output[1:])
    ctx.mode, ctx.normalize = mode, normalize
    ctx.set_materialize_grads(False)


def _differentiate(ctx: Context, grad_output: Tensor, *_: Tensor | None) -> tuple[Any, ...]:
    grad_hidden = _backward(grad_output, *ctx.saved_tensors, ctx.mode, ctx.normalize)
    return grad_hidden, None, None, None, None


_forward.register_autograd(_differentiate, setup_context=_setup_context)


def pooling(hidden_TD: Tensor, sequences: Layout, *, mode: str, normalize: bool) -> Tensor:
    """Implement :func:`encoder_engine.ops.pooling` by the Triton kernels."""
    tiles = sequences.tiles(CHUNK)
    output: Tensor = _forward(hidden_TD, sequences.cu_seqlens, tiles, mode, normalize)[0]
    return output
