"""The embedding layer by the Triton kernels, as a traceable, differentiable PyTorch operator."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from ..common.dropout_seed import draw_seed
from ..common.layout import contiguous
from .backward import embedding_backward
from .forward import Given, embedding_forward
from .table_gradient import table_gradient

if TYPE_CHECKING:
    Context = Any


_GIVEN = (
    "Tensor tokens, Tensor? places, Tensor? segments, Tensor token_table, Tensor? position_table,"
    " Tensor? segment_table, Tensor weight"
)
_NUM_GIVEN = len(Given._fields)
_SCHEMA = (
    f"({_GIVEN}, Tensor? bias, Tensor? seed, float epsilon, float dropout)"
    " -> (Tensor output, Tensor mean, Tensor rstd)"
)
_BACKWARD_SCHEMA = (
    f"(Tensor grad_output, {_GIVEN}, Tensor mean, Tensor rstd, Tensor? seed, float dropout)"
    " -> (Tensor token_table, Tensor position_table, Tensor segment_table, Tensor weight,"
    " Tensor bias)"
)
Gradients = tuple[Tensor, Tensor, Tensor, Tensor, Tensor]


@torch.library.custom_op("encoder_engine::embedding", mutates_args=(), schema=_SCHEMA)
def _forward(*arguments: Any) -> tuple[Tensor, Tensor, Tensor]:
    given, (bias, *numbers) = Given(*arguments[:_NUM_GIVEN]), arguments[_NUM_GIVEN:]
    return embedding_forward(given.contiguous(), contiguous(bias), *numbers)


@_forward.register_fake
def _(*arguments: Any) -> tuple[Tensor, Tensor, Tensor]:
    given = Given(*arguments[:_NUM_GIVEN])
    num_rows = given.tokens_T.shape[0]
    output = given.token_table_VE.new_empty(num_rows, given.token_table_VE.shape[1])
    mean = output.new_empty(num_rows, dtype=torch.float32)
    return output, mean, torch.empty_like(mean)


@torch.library.custom_op(
    "encoder_engine::embedding_backward", mutates_args=(), schema=_BACKWARD_SCHEMA
)
def _backward(grad_output_TE: Tensor, *arguments: Any) -> Gradients:
    given = Given(*arguments[:_NUM_GIVEN]).contiguous()
    grad_sum, grad_weight, grad_bias = embedding_backward(
        grad_output_TE.contiguous(), given, *arguments[_NUM_GIVEN:]
    )
    grad_tokens = table_gradient(grad_sum, given.tokens_T, len(given.token_table_VE))
    grad_positions = grad_sum.new_empty(0)
    if given.places_T is not None and given.position_table_PE is not None:
        grad_positions = table_gradient(grad_sum, given.places_T, len(given.position_table_PE))
    if given.segment_table_SE is None:
        grad_segments = grad_sum.new_empty(0)
    else:
        first = torch.zeros_like(given.tokens_T)
        segments = first if given.segments_T is None else given.segments_T
        grad_segments = table_gradient(grad_sum, segments, len(given.segment_table_SE))
    return grad_tokens, grad_positions, grad_segments, grad_weight, grad_bias


@_backward.register_fake
def _(_: Tensor, *arguments: Any) -> Gradients:
    given = Given(*arguments[:_NUM_GIVEN])
    grad_tokens = given.token_table_VE.new_empty(given.token_table_VE.shape)
    optional = (given.position_table_PE, given.segment_table_SE)
    positions, segments = ((0,) if table is None else table.shape for table in optional)
    grad_weight = grad_tokens.new_empty(given.weight_E.shape, dtype=torch.float32)
    return (
        grad_tokens,
        grad_tokens.new_empty(positions),
        grad_tokens.new_empty(segments),
        grad_weight,
        torch.empty_like(grad_weight),
    )


def _setup_context(ctx: Context, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
    given, (bias, seed, _, dropout) = inputs[:_NUM_GIVEN], inputs[_NUM_GIVEN:]
    _, mean, rstd = output
    ctx.save_for_backward(*given, mean, rstd, seed)
    ctx.dropout = dropout
    ctx.bias_dtype = None if bias is None else bias.dtype
    ctx.set_materialize_grads(False)


def _differentiate(ctx: Context, grad_output: Tensor, *_: Tensor | None) -> tuple[Any, ...]:
    saved = ctx.saved_tensors
    given = Given(*saved[:_NUM_GIVEN])
    grad_tokens, grad_positions, grad_segments, grad_weight, grad_bias = _backward(
        grad_output, *saved, ctx.dropout
    )
    segments = None if given.segment_table_SE is None else grad_segments
    positions = None if given.position_table_PE is None else grad_positions
    weight = grad_weight.to(given.weight_E.dtype)
    bias = None if ctx.bias_dtype is None else grad_bias.to(ctx.bias_dtype)
    tables = (grad_tokens, positions, segments)
    return None, None, None, *tables, weight, bias, None, None, None


_forward.register_autograd(_differentiate, setup_context=_setup_context)


def embedding(
    input_ids_T: Tensor,
    position_ids_T: Tensor | None,
    segment_ids_T: Tensor | None,
    *,
    token_weight_VE: Tensor,
    position_weight_PE: Tensor | None,
    segment_weight_SE: Tensor | None,
    norm_weight_E: Tensor,
    norm_bias_E: Tensor | None,
    epsilon: float,
    token_scale_T: None,
    dropout: float,
) -> Tensor:
    """Implement :func:`encoder_engine.ops.embedding` by the Triton kernels."""
    assert token_scale_T is None
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
