"""The statistics of a row's logits, and the loss computed from them."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from ..common.layout import contiguous

# V: vocabulary, E: features of a projected row, M: rows, C: columns of a part of the vocabulary.


class Given(NamedTuple):
    """The inputs of the logits ``hidden @ weight.T + bias``, and the labels."""

    hidden_ME: Tensor
    weight_VE: Tensor
    bias_V: Tensor | None
    labels_M: Tensor  # int64

    def contiguous(self) -> Given:
        """Return the inputs with each tensor contiguous."""
        return Given._make(contiguous(x) for x in self)


class Terms(NamedTuple):
    """The options of each row's loss: label smoothing, z-loss, and the label that is ignored."""

    label_smoothing: float
    z_loss: float
    ignore_index: int


class Statistics(NamedTuple):
    """The statistics of each row's logits that the loss needs, in float32 or wider."""

    lse_M: Tensor  # log sum exp
    label_logit_M: Tensor  # anything where the row is ignored
    logit_sum_M: Tensor  # read only where labels are smoothed
    predictions_M: Tensor  # int64, the arg max; empty where not requested


class Found(NamedTuple):
    """The result of a :class:`Forward`; ``grad_logits_MV`` is empty where not kept for backward."""

    statistics: Statistics
    grad_logits_MV: Tensor


class Wanted(NamedTuple):
    """Which gradients backward should compute."""

    hidden: bool
    weight: bool
    bias: bool


def wide_dtype(dtype: torch.dtype) -> torch.dtype:
    """Return the dtype of losses and statistics for logits of ``dtype``: float32 or wider."""
    return torch.promote_types(dtype, torch.float32)


def row_losses(
    found: Statistics, labels_M: Tensor, terms: Terms, vocab_size: int
) -> tuple[Tensor, Tensor]:
    """Return the loss and the negative log likelihood of each row, both 0 for ignored rows."""
    ignored = labels_M == terms.ignore_index
    nll = (found.lse_M - found.label_logit_M).masked_fill(ignored, 0.0)
    loss = nll.clone()  # an operator's outputs must not share memory
    if terms.label_smoothing > 0.0:
        spread = found.lse_M - found.logit_sum_M / vocab_size
        loss = torch.lerp(nll, spread, terms.label_smoothing)
    if terms.z_loss > 0.0:
        loss = loss + terms.z_loss * found.lse_M.square()
    return loss.masked_fill(ignored, 0.0), nll
