"""The embedding layer as a PyTorch operator: traceable, differentiable, the kernels behind it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from ..common.dropout_seed import draw_seed
from .backward import embedding_backward
from .forward import embedding_forward
from .table_gradient import table_gradient

if TYPE_CHECKING:
    Context = Any


@torch.library.custom_op("encoder_engine::embedding", mutates_args=())
def _forward(
    tokens_T: Tensor,
    places_T: Tensor,
    segments_T: Tensor | None,
    token_table_VE: Tensor,
    position_table_PE: Tensor,
    segment_table_SE: Tensor | None,
    weight_E: Tensor,
    bias_E: Tensor,
    seed: Tensor | None,
    epsilon: float,
    dropout: float,
) -> tuple[Tensor, Tensor, Tensor]:
    return embedding_forward(
        tokens_T.contiguous(),
        places_T.contiguous(),
        _contiguous(segments_T),
        token_table_VE.contiguous(),
        position_table_PE.contiguous(),
        _contiguous(segment_table_SE),
        weight_E.contiguous(),
        bias_E.contiguous(),
        seed,
        epsilon,
        dropout,
    )


@_forward.register_fake
def _(
    tokens_T: Tensor,
    places_T: Tensor,
    segments_T: Tensor | None,
    token_table_VE: Tensor,
    position_table_PE: Tensor,
    segment_table_SE: Tensor | None,
    weight_E: Tensor,
    bias_E: Tensor,
    seed: Tensor | None,
    epsilon: float,
    dropout: float,
) -> tuple[Tensor, Tensor, Tensor]:
    output = token_table_VE.new_empty(tokens_T.shape[0], token_table_VE.shape[1])
    mean = output.new_empty(tokens_T.shape[0], dtype=torch.float32)
    return output, mean, torch.empty_like(mean)


@torch.library.custom_op("encoder_engine::embedding_backward", mutates_args=())
def _backward(
    grad_output_TE: Tensor,
    tokens_T: Tensor,
    places_T: Tensor,
    segments_T: Tensor | None,
    token_table_VE: Tensor,
    position_table_PE: Tensor,
    segment_table_SE: Tensor | None,
    weight_E: Tensor,
    mean_T: Tensor,
    rstd_T: Tensor,
    seed: Tensor | None,
    dropout: float,
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    grad_sum, grad_weight, grad_bias = embedding_backward(
        grad_output_TE.contiguous(),
        tokens_T.contiguous(),
        places_T.contiguous(),
        _contiguous(segments_T),
        token_table_VE.contiguous(),
        position_table_PE.contiguous(),
        _contiguous(segment_table_SE),
        weight_E.contiguous(),
        mean_T,
        rstd_T,
        seed,
        dropout,
    )
    grad_tokens = table_gradient(grad_sum, tokens_T, len(token_table_VE))
    grad_positions = table_gradient(grad_sum, places_T, len(position_table_PE))
    if segment_table_SE is None:
        grad_segments = grad_sum.new_empty(0)
    else:
        segments = torch.zeros_like(tokens_T) if segments_T is None else segments_T
        grad_segments = table_gradient(grad_sum, segments, len(segment_table_SE))
    return grad_tokens, grad_positions, grad_segments, grad_weight, grad_bias


@_backward.register_fake
def _(
    grad_output_TE: Tensor,
    tokens_T: Tensor,
    places_T: Tensor,
    segments_T: Tensor | None,
    token_table_VE: Tensor,
    position_table_PE: Tensor,
    segment_table_SE: Tensor | None,
    weight_E: Tensor,
    mean_T: Tensor,
    rstd_T: Tensor,
    seed: Tensor | None,
    dropout: float,
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    grad_tokens = token_table_VE.new_empty(token_table_VE.shape)
    grad_positions = grad_tokens.new_empty(position_table_PE.shape)
    shape = (0,) if segment_table_SE is None else segment_table_SE.shape
    grad_weight = grad_tokens.new_empty(weight_E.shape, dtype=torch.float32)
    return (
        grad_tokens,
        grad_positions,
        grad_tokens.new_empty(shape),
        grad_weight,
        torch.empty_like(grad_weight),
    )


def _contiguous(tensor: Tensor | None) -> Tensor | None:
    return None if tensor is None else tensor.contiguous()


def _setup_context(ctx: Context, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
    *ids_and_tables, weight, bias, seed, _, dropout = inputs
    _, mean, rstd = output
    ctx.save_for_backward(*ids_and_tables, weight, mean, rstd, seed)
    ctx.dropout = dropout
    ctx.bias_dtype = bias.dtype
    ctx.set_materialize_grads(False)


def _differentiate(ctx: Context, grad_output: Tensor, *_: Tensor | None) -> tuple[Any, ...]:
    saved = ctx.saved_tensors
    grad_tokens, grad_positions, grad_segments, grad_weight, grad_bias = _backward(
        grad_output, *saved, ctx.dropout
    )
    segments = None if saved[5] is None else grad_segments
    weight, bias = grad_weight.to(saved[6].dtype), grad_bias.to(ctx.bias_dtype)
    tables = (grad_tokens, grad_positions, segments)
    return None, None, None, *tables, weight, bias, None, None, None


_forward.register_autograd(_differentiate, setup_context=_setup_context)


def embedding(
    input_ids_T: Tensor,
    position_ids_T: Tensor,
    segment_ids_T: Tensor | None,
    *,
    token_weight_VE: Tensor,
    position_weight_PE: Tensor,
    segment_weight_SE: Tensor | None,
    norm_weight_E: Tensor,
    norm_bias_E: Tensor,
    epsilon: float,
    dropout: float,
) -> Tensor:
    """Fulfil ``ops.embedding``."""
    seed = draw_seed(token_weight_VE) if dropout > 0.0 else None
    output: Tensor = _forward(
        input_ids_T,
        position_ids_T,
        segment_ids_T,
        token_weight_VE,
        position_weight_PE,
        segment_weight_SE,
        norm_weight_E,
        norm_bias_E,
        seed,
        epsilon,
        dropout,
    )[0]
    return output
