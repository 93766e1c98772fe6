"""Makes a forward and a backward function one differentiable, traceable PyTorch operator."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import torch
from torch import Tensor

from ..common.dropout_seed import draw_seed
from .terms import Terms

if TYPE_CHECKING:
    from collections.abc import Callable

    Context = Any


class Call(NamedTuple):
    """All that a call is computed from, in the operator's order."""

    query_THD: Tensor
    key_TKD: Tensor
    value_TKD: Tensor
    slopes_H: Tensor | None
    seed: Tensor | None  # int64 [1], where weights are dropped
    layout: list[Tensor]  # where sequences lie, as the implementation wants to know it
    scale: float
    dropout: float
    window: int | None
    causal: bool

    @property
    def terms(self) -> Terms:
        """What ``ops`` made the call of, besides queries, keys and values."""
        return Terms(self.scale, self.dropout, self.window, self.causal, self.slopes_H)

    @property
    def group(self) -> int:
        """How many heads of the query share one of the key."""
        return self.query_THD.shape[1] // self.key_TKD.shape[1]


_CALL = (
    "Tensor query, Tensor key, Tensor value, Tensor? slopes, Tensor? seed, Tensor[] layout,"
    " float scale, float dropout, int? window, bool causal"
)
_SCHEMA = f"({_CALL}) -> (Tensor output, Tensor lse)"
_BACKWARD_SCHEMA = (
    f"(Tensor grad_output, Tensor output, Tensor lse, {_CALL})"
    " -> (Tensor grad_query, Tensor grad_key, Tensor grad_value)"
)
Gradients = tuple[Tensor, Tensor, Tensor]


class Forward(Protocol):
    """Computes the output, contiguous, and [H, T] log-sum-exps (nothing where not kept)."""

    def __call__(self, call: Call) -> tuple[Tensor, Tensor]: ...  # noqa: D102


class Backward(Protocol):
    """Computes the gradients of query, key and value, contiguous."""

    def __call__(  # noqa: D102
        self, grad_output_THD: Tensor, output_THD: Tensor, lse_HT: Tensor, call: Call
    ) -> Gradients: ...


def define_operator(
    name: str, forward: Forward, backward: Backward, *, keeps_lse: bool
) -> Callable[[Tensor, Tensor, Tensor, list[Tensor], Terms], Tensor]:
    """Register ``encoder_engine::<name>`` and its backward; return a function that calls it."""

    def run(*arguments: Any) -> tuple[Tensor, Tensor]:
        return forward(Call(*arguments))

    def run_backward(
        grad_output: Tensor, output: Tensor, lse: Tensor, *arguments: Any
    ) -> Gradients:
        return backward(grad_output, output, lse, Call(*arguments))

    def fake(*arguments: Any) -> tuple[Tensor, Tensor]:
        query = Call(*arguments).query_THD
        shape = (query.shape[1], query.shape[0]) if keeps_lse else (0,)
        return _empty_like(query), query.new_empty(shape, dtype=torch.float32)

    full = f"encoder_engine::{name}"
    operator = torch.library.custom_op(full, run, mutates_args=(), schema=_SCHEMA)
    operator_backward = torch.library.custom_op(
        f"{full}_backward", run_backward, mutates_args=(), schema=_BACKWARD_SCHEMA
    )
    operator.register_fake(fake)
    operator_backward.register_fake(_fake_backward)

    def differentiate(ctx: Context, grad_output: Tensor, _: Tensor | None) -> tuple[Any, ...]:
        output, lse, *tensors = ctx.saved_tensors
        call = Call._make((*tensors[:5], tensors[5:], *ctx.numbers))
        grads = operator_backward(grad_output, output, lse, *call)
        return (*grads, None, None, [None] * len(call.layout), *(None for _ in ctx.numbers))

    operator.register_autograd(differentiate, setup_context=_setup_context)

    def attend(
        query_THD: Tensor,
        key_TKD: Tensor,
        value_TKD: Tensor,
        layout: list[Tensor],
        terms: Terms,
    ) -> Tensor:
        seed = draw_seed(query_THD) if terms.dropout > 0.0 else None
        numbers = (terms.scale, terms.dropout, terms.window, terms.causal)
        output: Tensor
        output, _ = operator(
            *Call(query_THD, key_TKD, value_TKD, terms.slopes_H, seed, layout, *numbers)
        )
        return output

    return attend


def _empty_like(x: Tensor) -> Tensor:
    return torch.empty_like(x, memory_format=torch.contiguous_format)


def _fake_backward(*arguments: Any) -> Gradients:
    call = Call(*arguments[3:])
    return _empty_like(call.query_THD), _empty_like(call.key_TKD), _empty_like(call.value_TKD)


def _setup_context(ctx: Context, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
    call = Call(*inputs)
    ctx.save_for_backward(*output, *call[:5], *call.layout)
    ctx.numbers = call[6:]
    ctx.set_materialize_grads(False)
