"""Registers a masked projection and its gradient as a PyTorch operator that can be traced."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

import torch
from torch import Tensor

from .terms import Found, Given, Terms, Wanted, row_losses, wide_dtype

if TYPE_CHECKING:
    from collections.abc import Callable

    Context = Any
    Implementation = Callable[..., tuple[Tensor, Tensor, Tensor]]

_INPUTS = "Tensor hidden, Tensor weight, Tensor? bias, Tensor labels"
_TERMS = "float label_smoothing, float z_loss, int ignore_index, bool tiled"
_SCHEMA = (
    f"({_INPUTS}, Tensor? weight_gradient, {_TERMS}, bool predict, bool keep)"
    " -> (Tensor loss, Tensor nll, Tensor predictions, Tensor lse, Tensor grad_logits)"
)
_BACKWARD_SCHEMA = (
    f"(Tensor scale, {_INPUTS}, Tensor lse, Tensor grad_logits, Tensor(a!)? weight_gradient,"
    f" {_TERMS}, bool wants_hidden, bool wants_weight, bool wants_bias)"
    " -> (Tensor grad_hidden, Tensor grad_weight, Tensor grad_bias)"
)


class Forward(Protocol):
    """Type of functions that compute the statistics of the logits [M, V].

    With ``keep`` they also return the logits' gradient, for backward.
    """

    def __call__(  # noqa: D102
        self, given: Given, terms: Terms, *, tiled: bool, predict: bool, keep: bool
    ) -> Found: ...


class Backward(Protocol):
    """Type of functions that compute gradients of hidden, weight and bias, empty if not wanted.

    ``scale_M``: the gradient of the row losses, 0 for ignored rows.
    ``grad_logits_MV``: the logits' gradient that forward kept.
    ``weight_gradient_VE``: a buffer to which the weight's gradient is added, or None.
    """

    def __call__(  # noqa: D102
        self,
        scale_M: Tensor,
        given: Given,
        lse_M: Tensor,
        grad_logits_MV: Tensor,
        weight_gradient_VE: Tensor | None,
        terms: Terms,
        wanted: Wanted,
        *,
        tiled: bool,
    ) -> tuple[Tensor, Tensor, Tensor]: ...


def define_operator(
    name: str, forward: Forward, backward: Backward, padded: Callable[[int], int]
) -> Implementation:
    """Register ``encoder_engine::<name>`` and its backward; return a function that calls it.

    ``padded``: returns the columns in memory of the kept gradient, for a vocabulary size.
    """

    def run(*arguments: Any) -> tuple[Tensor, ...]:
        return _run_forward(forward, *arguments)

    def run_backward(*arguments: Any) -> tuple[Tensor, ...]:
        return _run_backward(backward, *arguments)

    def fake(*arguments: Any) -> tuple[Tensor, ...]:
        return _fake_forward(padded, *arguments)

    full = f"encoder_engine::{name}"
    operator = torch.library.custom_op(full, run, mutates_args=(), schema=_SCHEMA)
    operator_backward = torch.library.custom_op(
        f"{full}_backward", run_backward, mutates_args=("weight_gradient",), schema=_BACKWARD_SCHEMA
    )
    operator.register_fake(fake)
    operator_backward.register_fake(_fake_backward)

    def differentiate(ctx: Context, grad_loss: Tensor | None, *_: Tensor | None) -> tuple[Any, ...]:
        return _differentiate(operator_backward, ctx, grad_loss)

    operator.register_autograd(differentiate, setup_context=_setup_context)

    def masked_cross_entropy(
        hidden_ME: Tensor,
        weight_VE: Tensor,
        bias_V: Tensor | None,
        labels_M: Tensor,
        *,
        label_smoothing: float,
        z_loss: float,
        ignore_index: int,
        tiled: bool,
        predict: bool,
        weight_gradient_VE: Tensor | None,
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Implement :func:`encoder_engine.ops.masked_cross_entropy` by the operator."""
        leaves = (hidden_ME, weight_VE, bias_V)
        terms = (label_smoothing, z_loss, ignore_index)
        # Where a backward pass is possible, forward keeps the logits' gradient for it.
        keep = torch.is_grad_enabled() and any(x is not None and x.requires_grad for x in leaves)
        loss_M, nll_M, predictions_M, _, _ = operator(
            *leaves, labels_M, weight_gradient_VE, *terms, tiled, predict, keep
        )
        return loss_M, nll_M, predictions_M

    return masked_cross_entropy


def _run_forward(
    forward: Forward,
    hidden_ME: Tensor,
    weight_VE: Tensor,
    bias_V: Tensor | None,
    labels_M: Tensor,
    _weight_gradient: Tensor | None,
    label_smoothing: float,
    z_loss: float,
    ignore_index: int,
    tiled: bool,
    predict: bool,
    keep: bool,
) -> tuple[Tensor, ...]:
    given = _given(hidden_ME, weight_VE, bias_V, labels_M)
    terms = Terms(label_smoothing, z_loss, ignore_index)
    found = forward(given, terms, tiled=tiled, predict=predict, keep=keep and not tiled)
    statistics = found.statistics
    loss, nll = row_losses(statistics, labels_M, terms, len(weight_VE))
    return loss, nll, statistics.predictions_M, statistics.lse_M, found.grad_logits_MV


def _fake_forward(
    padded: Callable[[int], int],
    hidden_ME: Tensor,
    weight_VE: Tensor,
    _bias: Tensor | None,
    labels_M: Tensor,
    _weight_gradient: Tensor | None,
    *options: Any,
) -> tuple[Tensor, ...]:
    *_, tiled, predict, keep = options
    # Not len(): it would specialise symbolic sizes.
    num_rows = hidden_ME.shape[0]
    loss = hidden_ME.new_empty(num_rows, dtype=wide_dtype(hidden_ME.dtype))
    predictions = labels_M.new_empty(num_rows if predict else 0)
    kept = (num_rows, padded(weight_VE.shape[0])) if keep and not tiled else (0, 0)
    nll, lse = torch.empty_like(loss), torch.empty_like(loss)
    return loss, nll, predictions, lse, hidden_ME.new_empty(kept)


def _run_backward(
    backward: Backward,
    scale_M: Tensor,
    hidden_ME: Tensor,
    weight_VE: Tensor,
    bias_V: Tensor | None,
    labels_M: Tensor,
    lse_M: Tensor,
    grad_logits_MV: Tensor,
    weight_gradient_VE: Tensor | None,
    label_smoothing: float,
    z_loss: float,
    ignore_index: int,
    tiled: bool,
    *wants: bool,
) -> tuple[Tensor, ...]:
    # The mean over no rows has an infinite scale, and inf * 0 is NaN.
    scale_M = scale_M.masked_fill(labels_M == ignore_index, 0.0)
    wanted, sums_VE = Wanted(*wants), weight_gradient_VE
    if wanted.weight and sums_VE is None and weight_VE.dtype != hidden_ME.dtype:
        sums_VE = torch.zeros_like(weight_VE, memory_format=torch.contiguous_format)
    grad_hidden, grad_weight, grad_bias = backward(
        scale_M,
        _given(hidden_ME, weight_VE, bias_V, labels_M),
        lse_M,
        grad_logits_MV,
        sums_VE,
        Terms(label_smoothing, z_loss, ignore_index),
        wanted,
        tiled=tiled,
    )
    if sums_VE is not None and weight_gradient_VE is None:
        grad_weight = sums_VE
    return grad_hidden, grad_weight, grad_bias


def _given(hidden_ME: Tensor, weight_VE: Tensor, bias_V: Tensor | None, labels_M: Tensor) -> Given:
    """Return the inputs in the hidden states' dtype; under autocast the weight's is wider."""
    dtype = hidden_ME.dtype
    bias_V = None if bias_V is None else bias_V.to(dtype)
    return Given(hidden_ME, weight_VE.to(dtype), bias_V, labels_M).contiguous()


def _fake_backward(
    _scale: Tensor,
    hidden_ME: Tensor,
    weight_VE: Tensor,
    _bias: Tensor | None,
    _labels: Tensor,
    lse_M: Tensor,
    _grad_logits: Tensor,
    weight_gradient_VE: Tensor | None,
    *options: Any,
) -> tuple[Tensor, ...]:
    wanted = Wanted(*options[-3:])
    returned = wanted.weight and weight_gradient_VE is None
    grad_hidden = hidden_ME.new_empty(hidden_ME.shape if wanted.hidden else (0,))
    grad_weight = weight_VE.new_empty(weight_VE.shape if returned else (0,))
    return grad_hidden, grad_weight, lse_M.new_empty(weight_VE.shape[0] if wanted.bias else 0)


def _setup_context(ctx: Context, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
    hidden, weight, bias, labels, weight_gradient, *options, _predict, _keep = inputs
    ctx.save_for_backward(hidden, weight, bias, labels, *output[3:])
    # Not a saved tensor: other losses of the step may change it before backward.
    ctx.weight_gradient = weight_gradient
    ctx.options = options
    ctx.mark_non_differentiable(*output[1:])
    ctx.set_materialize_grads(False)


def _differentiate(
    operator_backward: Callable[..., tuple[Tensor, ...]], ctx: Context, grad_loss: Tensor | None
) -> tuple[Any, ...]:
    if grad_loss is None:
        return (None,) * 11
    hidden, weight, bias, labels, lse, grad_logits = ctx.saved_tensors
    wanted = ctx.needs_input_grad[:3]
    buffer = ctx.weight_gradient if wanted[1] else None
    grads = operator_backward(
        grad_loss, hidden, weight, bias, labels, lse, grad_logits, buffer, *ctx.options, *wanted
    )
    grad_hidden, grad_weight, grad_bias = (
        grad if needed else None for grad, needed in zip(grads, wanted, strict=True)
    )
    if buffer is not None:
        grad_weight = None
    grad_bias = None if grad_bias is None else grad_bias.to(bias.dtype)
    return grad_hidden, grad_weight, grad_bias, *(None,) * 8
