"""Vocabulary projection and cross-entropy of masked tokens by the C++ extension.

How it works: the logits [M, V] are one product, stored in the rows' dtype. A pass over each row
takes its statistics and writes the gradient of its loss in place of the logits. The backward pass
is two more products, and a sum of columns for the bias.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from encoder_engine import _native
from encoder_engine.kernels.masked_projection.terms import Statistics, Terms, row_losses
from encoder_engine.ops.native import kept, shared_gradient
from encoder_engine.ops.native.linear import column_sums, multiply
from encoder_engine.ops.native.rows import address, is_trained


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
    """Compute ``ops.masked_cross_entropy``, with the logits stored."""
    keep = is_trained(hidden_ME, weight_VE, bias_V)
    found: tuple[Tensor, Tensor, Tensor] = _Loss.apply(  # type: ignore[no-untyped-call]
        *(hidden_ME, weight_VE, bias_V, labels_M),
        Terms(label_smoothing, z_loss, ignore_index),
        *(predict, keep, weight_gradient_VE),
    )
    return found


class _Loss(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        hidden_ME: Tensor,
        weight_VE: Tensor,
        bias_V: Tensor | None,
        labels_M: Tensor,
        terms: Terms,
        predict: bool,
        keep: bool,
        weight_gradient_VE: Tensor | None,
    ) -> tuple[Tensor, Tensor, Tensor]:
        num_rows, vocab_size = len(hidden_ME), len(weight_VE)
        logits_MV = kept.empty(num_rows, vocab_size, dtype=hidden_ME.dtype)
        multiply(hidden_ME, weight_VE, logits_MV, dtype=hidden_ME.dtype, bias_N=bias_V)
        labels_M = labels_M.contiguous()
        numbers = torch.empty(3, num_rows, dtype=torch.float32)
        predictions_M = torch.empty(num_rows if predict else 0, dtype=torch.int64)
        _native.cross_entropy_rows(
            logits_MV.dtype == torch.bfloat16,
            *(logits_MV.data_ptr(), labels_M.data_ptr()),
            *(numbers[0].data_ptr(), numbers[1].data_ptr(), numbers[2].data_ptr()),
            address(predictions_M) if predict else 0,
            *(num_rows, vocab_size),
            keep,
            *(terms.label_smoothing, terms.z_loss),
            torch.get_num_threads(),
        )
        statistics = Statistics(*numbers.unbind(0), predictions_M)
        loss_M, nll_M = row_losses(statistics, labels_M, terms, vocab_size)
        ctx.save_for_backward(hidden_ME, weight_VE, labels_M, logits_MV if keep else None)
        # Not a saved tensor: other losses of the step may change it before backward.
        ctx.weight_gradient_VE, ctx.ignore_index = weight_gradient_VE, terms.ignore_index
        ctx.bias_dtype = None if bias_V is None else bias_V.dtype
        ctx.mark_non_differentiable(nll_M, predictions_M)
        ctx.set_materialize_grads(False)
        return loss_M, nll_M, predictions_M

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad_loss_M: Tensor | None, *_: None) -> tuple[Tensor | None, ...]:
        grads: list[Tensor | None] = [None] * 8
        if grad_loss_M is None:
            return tuple(grads)
        hidden_ME, weight_VE, labels_M, grad_MV = ctx.saved_tensors
        dtype = hidden_ME.dtype
        # The mean over no rows has an infinite scale, and inf * 0 is NaN.
        scale_M = grad_loss_M.float().masked_fill(labels_M == ctx.ignore_index, 0.0)
        if ctx.needs_input_grad[0]:
            wide_ME = kept.empty(*hidden_ME.shape, dtype=torch.float32)
            multiply(grad_MV, weight_VE, wide_ME, dtype=dtype, right_turned=True)
            grads[0] = wide_ME.mul_(scale_M[:, None]).to(dtype)
        if ctx.needs_input_grad[1]:
            scaled_ME = (hidden_ME * scale_M[:, None]).to(dtype)
            given = ctx.weight_gradient_VE
            sums_VE = kept.empty_like(weight_VE) if given is None else given
            multiply(
                *(grad_MV, scaled_ME, sums_VE),
                dtype=dtype,
                left_turned=True,
                right_turned=True,
                adds=given is not None,
            )
            if given is None:
                grads[1] = sums_VE
                shared_gradient.leave(weight_VE, sums_VE)
        if ctx.needs_input_grad[2]:
            grads[2] = column_sums(grad_MV, scale_M.contiguous()).to(ctx.bias_dtype)
        return tuple(grads)
