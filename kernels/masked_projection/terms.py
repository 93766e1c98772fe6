"""What each implementation finds out about a row's logits, and the loss that follows from it."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

# V: vocabulary, E: features of a projected row, M: rows, C: columns of a part of the vocabulary.


class Given(NamedTuple):
    """What the logits ``hidden @ weight.T + bias`` come from, and the tokens they should name."""

    hidden_ME: Tensor
    weight_VE: Tensor
    bias_V: Tensor | None
    labels_M: Tensor  # int64


class Terms(NamedTuple):
    """What the loss of a row consists of besides the label's log probability."""

    label_smoothing: float
    z_loss: float
    ignore_index: int


class Statistics(NamedTuple):
    """A row's logits in a few numbers, in float32 or wider."""

    lse_M: Tensor  # log sum exp
    label_logit_M: Tensor  # anything where the row is ignored
    logit_sum_M: Tensor  # read only where labels are smoothed
    predictions_M: Tensor  # int64, the likeliest token; empty where not asked for


class Found(NamedTuple):
    """What forward returns: ``grad_logits_MV`` is empty where it is not kept for backward."""

    statistics: Statistics
    grad_logits_MV: Tensor


class Wanted(NamedTuple):
    """Which gradients backward is to compute."""

    hidden: bool
    weight: bool
    bias: bool


def wide_dtype(dtype: torch.dtype) -> torch.dtype:
    """Name the type that losses and statistics are kept in."""
    return torch.promote_types(dtype, torch.float32)


def row_losses(
    found: Statistics, labels_M: Tensor, terms: Terms, vocab_size: int
) -> tuple[Tensor, Tensor]:
    """Return each row's loss and its negative log likelihood, both 0 where ignored."""
    ignored = labels_M == terms.ignore_index
    nll = (found.lse_M - found.label_logit_M).masked_fill(ignored, 0.0)
    loss = nll.clone()  # an operator's outputs must not share memory
    if terms.label_smoothing > 0.0:
        spread = found.lse_M - found.logit_sum_M / vocab_size
        loss = torch.lerp(nll, spread, terms.label_smoothing)
    if terms.z_loss > 0.0:
        loss = loss + terms.z_loss * found.lse_M.square()
    return loss.masked_fill(ignored, 0.0), nll
