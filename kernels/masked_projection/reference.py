"""The masked-token loss straight from its definition, in float64."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import torch

from .terms import wide_dtype

if TYPE_CHECKING:
    from torch import Tensor


def masked_cross_entropy(
    hidden_ME: Tensor,
    weight_VE: Tensor,
    bias_V: Tensor | None,
    labels_M: Tensor,
    *,
    label_smoothing: float,
    z_loss: float,
    ignore_index: int,
    tiled: bool,  # noqa: ARG001 - both ways are one definition
    predict: bool,
    weight_gradient_VE: Tensor | None,
) -> tuple[Tensor, Tensor, Tensor]:
    """Return the results of :func:`encoder_engine.ops.masked_cross_entropy`, by its formulas."""
    weight = weight_VE.double()
    if weight_gradient_VE is not None and weight.requires_grad:
        weight = weight.detach().requires_grad_()
        weight.register_hook(partial(_add_to, weight_gradient_VE))
    logits = hidden_ME.double() @ weight.T
    if bias_V is not None:
        logits = logits + bias_V.double()
    ignored = labels_M == ignore_index
    log_probabilities = torch.log_softmax(logits, dim=1)
    labels = labels_M.masked_fill(ignored, 0)
    nll = -log_probabilities.gather(1, labels[:, None])[:, 0]
    loss = (1.0 - label_smoothing) * nll - label_smoothing * log_probabilities.mean(dim=1)
    loss = loss + z_loss * torch.logsumexp(logits, dim=1) ** 2
    predictions = logits.argmax(dim=1) if predict else labels_M.new_empty(0)
    kind = wide_dtype(hidden_ME.dtype)
    loss, nll = (x.masked_fill(ignored, 0.0).to(kind) for x in (loss, nll))
    return loss, nll.detach(), predictions


def _add_to(buffer: Tensor, grad: Tensor) -> None:
    buffer.add_(grad.to(buffer.dtype))
