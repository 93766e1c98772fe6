"""Vocabulary projection and cross-entropy of masked tokens by PyTorch's operators."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from encoder_engine.kernels.masked_projection.differentiable import define_operator
from encoder_engine.kernels.masked_projection.gemm import gradients
from encoder_engine.kernels.masked_projection.terms import (
    Found,
    Given,
    Statistics,
    Terms,
    Wanted,
    wide_dtype,
)
from encoder_engine.ops.aten.linear import multiply

if TYPE_CHECKING:
    from collections.abc import Iterator

    from torch import Tensor

# Logits of one part, small enough for the cache; at least this many columns of the vocabulary, and
# for few rows few parts, because starting an operation has a cost.
PART_LOGITS, PART_COLUMNS = 5 << 18, 2048


def _part_columns(num_rows: int) -> int:
    return max(PART_COLUMNS, PART_LOGITS // max(num_rows, 1))


def _forward(
    given: Given,
    terms: Terms,
    *,
    tiled: bool,  # noqa: ARG001 - where nothing is kept both ways are one
    predict: bool,
    keep: bool,
) -> Found:
    hidden_ME, labels_M = given.hidden_ME, given.labels_M
    given = given._replace(labels_M=labels_M.masked_fill(labels_M == terms.ignore_index, 0))
    kept_MV = hidden_ME.new_empty((len(hidden_ME), len(given.weight_VE)) if keep else (0, 0))
    statistics, shifts = _statistics(given, terms, kept_MV if keep else None, predict=predict)
    if keep:
        lse_M = statistics.lse_M
        for (start, part_MC), shift_M in zip(_parts(kept_MV), shifts, strict=True):
            if part_MC.dtype == lse_M.dtype:
                # _statistics has replaced the logits by exponentials.
                part_MC.mul_((shift_M - lse_M).exp_()[:, None])
                _gradient(part_MC, given, lse_M, terms, start)
            else:
                part_MC.copy_(_gradient(_probabilities(part_MC, lse_M), given, lse_M, terms, start))
    return Found(statistics, kept_MV)


def _statistics(
    given: Given, terms: Terms, kept_MV: Tensor | None, *, predict: bool
) -> tuple[Statistics, list[Tensor]]:
    """Return the rows' statistics, and for each part of the logits the rows' maxima [M], 0 if inf.

    Logits in float32 or wider are replaced in place by ``exp(logit - maximum)``.
    """
    hidden_ME, _, _, labels_M = given
    wide = wide_dtype(hidden_ME.dtype)
    zeros = hidden_ME.new_zeros(len(hidden_ME), dtype=wide)
    lse, best = torch.full_like(zeros, -torch.inf), torch.full_like(zeros, -torch.inf)
    # A label outside the vocabulary makes the loss NaN.
    label_logit, logit_sum = torch.full_like(zeros, torch.nan), zeros
    predictions = torch.zeros_like(labels_M) if predict else labels_M.new_empty(0)
    shifts = []
    for start, logits_MC in _logits(given, kept_MV):
        here, places_M1 = _places(labels_M, start, logits_MC.shape[1])
        label_logit = torch.where(here, logits_MC.gather(1, places_M1)[:, 0], label_logit)
        if terms.label_smoothing > 0.0:
            logit_sum += logits_MC.sum(dim=1, dtype=wide)
        if predict:
            highest, place = logits_MC.max(dim=1)
            predictions = torch.where(highest > best, place + start, predictions)
            best = torch.maximum(best, highest)
        wide_MC = logits_MC.to(wide)
        shift = wide_MC.amax(dim=1)
        # inf - inf is NaN.
        shift.masked_fill_(shift.isinf(), 0.0)
        shifts.append(shift)
        sums = wide_MC.sub_(shift[:, None]).exp_().sum(dim=1)
        lse = torch.logaddexp(lse, sums.log_().add_(shift))
    return Statistics(lse, label_logit, logit_sum, predictions), shifts


def _logits(given: Given, kept_MV: Tensor | None) -> Iterator[tuple[int, Tensor]]:
    """Yield the logits in parts of the vocabulary: the part's first column, and [M, C].

    The parts are stored in ``kept_MV`` if given; else each overwrites the one before.
    """
    hidden_ME, weight_VE, bias_V, _ = given
    num_rows, vocab_size = len(hidden_ME), len(weight_VE)
    part_columns = _part_columns(num_rows)
    if kept_MV is None:
        whole = hidden_ME.new_empty(num_rows * min(part_columns, vocab_size))
    for start in range(0, vocab_size, part_columns):
        columns = slice(start, start + part_columns)
        weight_EC = weight_VE[columns].T
        if kept_MV is None:
            width = weight_EC.shape[1]
            logits_MC = whole[: num_rows * width].view(num_rows, width)
        else:
            logits_MC = _part(kept_MV, start)
        bias_C = None if bias_V is None else bias_V[columns]
        multiply(hidden_ME, weight_EC, bias_N=bias_C, out=logits_MC)
        yield start, logits_MC


def _part(kept_MV: Tensor, start: int) -> Tensor:
    """Return the stored part [M, C] of the logits that begins at column ``start``, as a view.

    The parts follow one another in memory, each contiguous.
    """
    num_rows, vocab_size = kept_MV.shape
    width = min(_part_columns(num_rows), vocab_size - start)
    return kept_MV.view(-1).narrow(0, num_rows * start, num_rows * width).view(num_rows, width)


def _parts(kept_MV: Tensor) -> Iterator[tuple[int, Tensor]]:
    num_rows, vocab_size = kept_MV.shape
    for start in range(0, vocab_size, _part_columns(num_rows)):
        yield start, _part(kept_MV, start)


def _probabilities(logits_MC: Tensor, lse_M: Tensor) -> Tensor:
    """Return the softmax of a part of the logits, in place if the dtype is float32 or wider."""
    return logits_MC.to(lse_M.dtype).sub_(lse_M[:, None]).exp_()


def _gradient(p: Tensor, given: Given, lse_M: Tensor, terms: Terms, start: int) -> Tensor:
    """Turn a part ``p`` of the softmax, in place, into the row losses' gradient by the logits.

    Rows with the ignored label get an arbitrary gradient: backward multiplies it by 0.
    """
    if terms.z_loss > 0.0:
        p *= (1.0 + 2.0 * terms.z_loss * lse_M)[:, None]
    if terms.label_smoothing > 0.0:
        p -= terms.label_smoothing / len(given.weight_VE)
    here, places_M1 = _places(given.labels_M, start, p.shape[1])
    hit = here.to(p.dtype) * (terms.label_smoothing - 1.0)
    return p.scatter_add_(1, places_M1, hit[:, None])


def _places(labels_M: Tensor, start: int, width: int) -> tuple[Tensor, Tensor]:
    """Return whether each label is in this part of the vocabulary, [M], and its column, [M, 1]."""
    places_M = labels_M - start
    return (places_M >= 0) & (places_M < width), places_M.clamp(0, width - 1)[:, None]


def _backward(
    scale_M: Tensor,
    given: Given,
    lse_M: Tensor,
    grad_logits_MV: Tensor,
    weight_gradient_VE: Tensor | None,
    terms: Terms,
    wanted: Wanted,
    *,
    tiled: bool,
) -> tuple[Tensor, Tensor, Tensor]:
    def computed_again() -> Iterator[tuple[int, Tensor]]:
        for start, logits_MC in _logits(given, None):
            grad_MC = _gradient(_probabilities(logits_MC, lse_M), given, lse_M, terms, start)
            yield start, grad_MC.to(logits_MC.dtype)

    parts = computed_again() if tiled else _parts(grad_logits_MV)
    found: tuple[Tensor, Tensor, Tensor]
    found = gradients(parts, scale_M, given, weight_gradient_VE, wanted, multiply)
    return found


masked_cross_entropy = define_operator(
    "masked_cross_entropy_aten", _forward, _backward, padded=lambda vocab_size: vocab_size
)
