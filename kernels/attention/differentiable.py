"""Registers an attention function and its gradient as a PyTorch operator that can be traced."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import torch
from torch import Tensor

from ..common.dropout_seed import draw_seed
from .joined import are_joined, empty_joined, heads_apart

if TYPE_CHECKING:
    from collections.abc import Callable

    from .terms import Terms

    Context = Any


class Call(NamedTuple):
    """The arguments of an attention call, in the operator's order."""

    query_MHD: Tensor
    key_TKD: Tensor
    value_TKD: Tensor
    bias_HR: Tensor | None
    slopes_H: Tensor | None
    seed: Tensor | None  # int64 [1], with dropout
    position_key_NHD: Tensor | None  # disentangled, see Disentangled
    position_query_NHD: Tensor | None
    entries_R: Tensor | None
    layout: list[Tensor]  # the sequences, in the implementation's own form
    scale: float
    dropout: float
    window: int | None
    causal: bool
    longest: list[int]  # queries and keys of a sequence at most, see Longest; or zeros
    joined: bool  # query, key and value are the heads of one tensor; so are their gradients

    @property
    def group(self) -> int:
        """The number of query heads that share a key head."""
        return self.query_MHD.shape[1] // self.key_TKD.shape[1]


_CALL = (
    "Tensor query, Tensor key, Tensor value, Tensor? bias, Tensor? slopes, Tensor? seed,"
    " Tensor? position_key, Tensor? position_query, Tensor? entries,"
    " Tensor[] layout, float scale, float dropout, int? window, bool causal, int[] longest,"
    " bool joined"
)
_SCHEMA = f"({_CALL}) -> (Tensor output, Tensor lse)"
_BACKWARD_SCHEMA = (
    f"(Tensor grad_output, Tensor output, Tensor lse, {_CALL})"
    " -> (Tensor grad_query, Tensor grad_key, Tensor grad_value, Tensor grad_bias,"
    " Tensor grad_position_key, Tensor grad_position_query)"
)


class Gradients(NamedTuple):
    """The gradients of an attention call's tensors, contiguous; empty for one that is not given.

    In a joined call, where query, key and value are heads of one tensor, ``query_MHD`` is
    [T, H + 2 K, D] and holds the gradients of all three.
    """

    query_MHD: Tensor
    key_TKD: Tensor
    value_TKD: Tensor
    bias_HR: Tensor
    position_key_NHD: Tensor
    position_query_NHD: Tensor


class Attend(Protocol):
    """Type of a function that calls attention's registered operator and returns the output."""

    def __call__(  # noqa: D102
        self,
        query_MHD: Tensor,
        key_TKD: Tensor,
        value_TKD: Tensor,
        layout: list[Tensor],
        terms: Terms,
        longest: tuple[int, int] = (0, 0),
    ) -> Tensor: ...


def define_operator(
    name: str,
    forward: Callable[[Call], tuple[Tensor, Tensor]],
    backward: Callable[[Tensor, Tensor, Tensor, Call], Gradients],
    *,
    keeps_lse: bool,
    joins: bool = False,
) -> Attend:
    """Register ``encoder_engine::<name>`` and its backward; return a function that calls it.

    ``forward``: returns the output, contiguous, and log-sum-exps [H, M], or without ``keeps_lse``
    an empty tensor. ``backward``: takes the output's gradient, output, log-sum-exps and call.
    ``joins``: it can write the gradients of query, key and value into one tensor.
    """

    def run(*arguments: Any) -> tuple[Tensor, Tensor]:
        return forward(Call(*arguments))

    def run_backward(
        grad_output: Tensor, output: Tensor, lse: Tensor, *arguments: Any
    ) -> tuple[Tensor, ...]:
        return tuple(backward(grad_output, output, lse, Call(*arguments)))

    def fake(*arguments: Any) -> tuple[Tensor, Tensor]:
        query = Call(*arguments).query_MHD
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
        call = Call._make((*tensors[:9], tensors[9:], *ctx.numbers))
        found = Gradients(*operator_backward(grad_output, output, lse, *call))
        if call.joined:
            found = Gradients._make((*heads_apart(found[0], call.key_TKD.shape[1]), *found[3:]))
        *grads, bias, position_key, position_query = (
            None if given is None else grad
            for given, grad in zip(
                (*call[:4], call.position_key_NHD, call.position_query_NHD), found, strict=True
            )
        )
        no_layout = [None] * len(call.layout)
        constants = (None for _ in ctx.numbers)
        return (*grads, bias, None, None, position_key, position_query, None, no_layout, *constants)

    operator.register_autograd(differentiate, setup_context=_setup_context)

    def attend(
        query_MHD: Tensor,
        key_TKD: Tensor,
        value_TKD: Tensor,
        layout: list[Tensor],
        terms: Terms,
        longest: tuple[int, int] = (0, 0),
    ) -> Tensor:
        seed = draw_seed(query_MHD) if terms.dropout > 0.0 else None
        key_NHD, query_NHD, entries_R = terms.disentangled or (None, None, None)
        given = (query_MHD, key_TKD, value_TKD, terms.bias_HR, terms.slopes_H, seed)
        tensors = (*given, key_NHD, query_NHD, entries_R, layout)
        numbers = (terms.scale, terms.dropout, terms.window, terms.causal, list(longest))
        joined = joins and terms.scale >= 0.0 and are_joined(query_MHD, key_TKD, value_TKD)
        output: Tensor = operator(*Call(*tensors, *numbers, joined))[0]
        return output

    return attend


def _empty_like(x: Tensor) -> Tensor:
    return torch.empty_like(x, memory_format=torch.contiguous_format)


def empty_gradients(call: Call) -> tuple[Tensor, Tensor, Tensor]:
    """Return memory for the gradients of query, key and value, see :class:`Gradients`."""
    query, key, value = call[:3]
    if not call.joined:
        return _empty_like(query), _empty_like(key), _empty_like(value)
    return empty_joined(query, key), query.new_empty(0), query.new_empty(0)


def _fake_backward(*arguments: Any) -> tuple[Tensor, ...]:
    call = Call(*arguments[3:])
    optional = (call.bias_HR, call.position_key_NHD, call.position_query_NHD)
    learned = (call.query_MHD.new_empty(0) if x is None else _empty_like(x) for x in optional)
    return (*empty_gradients(call), *learned)


def _setup_context(ctx: Context, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
    call = Call(*inputs)
    ctx.save_for_backward(*output, *call[:9], *call.layout)
    ctx.numbers = call[10:]
    ctx.set_materialize_grads(False)
