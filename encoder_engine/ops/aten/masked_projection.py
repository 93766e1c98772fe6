"""Vocabulary projection and cross-entropy of masked tokens by PyTorch."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
import torch.nn.functional as F  # noqa: N812

from encoder_engine.kernels.masked_projection.differentiable import define_operator
from encoder_engine.kernels.masked_projection.products import gradients
from encoder_engine.kernels.masked_projection.terms import (
    Found,
    Given,
    Statistics,
    Terms,
    Wanted,
    wide_dtype,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from torch import Tensor

# Stored logits are worked on in blocks of rows that stay in a cache, tiled ones in parts of the
# vocabulary: both bound what is held in float32.
BLOCK_ELEMENTS = 2**20
PART_COLUMNS = 2048


def _forward(given: Given, terms: Terms, *, tiled: bool, predict: bool, keep: bool) -> Found:
    hidden_ME, weight_VE, bias_V, labels_M = given
    safe_M = labels_M.masked_fill(labels_M == terms.ignore_index, 0)
    if tiled:
        statistics = _tiled_statistics(given._replace(labels_M=safe_M), terms, predict=predict)
        return Found(statistics, hidden_ME.new_empty(0, 0))
    logits_MV = F.linear(hidden_ME, weight_VE, bias_V)
    wide = wide_dtype(logits_MV.dtype)
    lse, label_logit, logit_sum = (logits_MV.new_empty(len(labels_M), dtype=wide) for _ in range(3))
    predictions = torch.empty_like(labels_M) if predict else labels_M.new_empty(0)
    block_rows = max(1, BLOCK_ELEMENTS // len(weight_VE))
    for start in range(0, len(labels_M), block_rows):
        rows = slice(start, start + block_rows)
        block, labels = logits_MV[rows], safe_M[rows, None]
        label_logit[rows] = block.gather(1, labels)[:, 0]
        logit_sum[rows] = block.sum(dim=1, dtype=wide) if terms.label_smoothing > 0.0 else 0.0
        if predict:
            predictions[rows] = block.argmax(dim=1)
        log_p = torch.log_softmax(block, dim=1, dtype=wide)
        lse[rows] = label_logit[rows] - log_p.gather(1, labels)[:, 0]
        if keep:
            # Half precision rounds once, when all is done.
            p = torch.exp(log_p, out=block if block.dtype == wide else log_p)
            _finish(p, safe_M[rows], lse[rows], terms, len(weight_VE), 0)
            if p is not block:
                block.copy_(p)
    kept = logits_MV if keep else logits_MV.new_empty(0, 0)
    return Found(Statistics(lse, label_logit, logit_sum, predictions), kept)


def _tiled_statistics(given: Given, terms: Terms, *, predict: bool) -> Statistics:
    hidden_ME, safe_M = given.hidden_ME, given.labels_M
    zeros = hidden_ME.new_zeros(len(hidden_ME), dtype=wide_dtype(hidden_ME.dtype))
    lse, best = torch.full_like(zeros, -torch.inf), torch.full_like(zeros, -torch.inf)
    label_logit, logit_sum = zeros, zeros.clone()
    predictions = torch.zeros_like(safe_M) if predict else safe_M.new_empty(0)
    for start, logits_MC in _tiled_logits(given):
        here, places_M1 = _places(safe_M, start, logits_MC.shape[1])
        label_logit = torch.where(here, logits_MC.gather(1, places_M1)[:, 0], label_logit)
        if terms.label_smoothing > 0.0:
            logit_sum += logits_MC.sum(dim=1)
        if predict:
            highest, place = logits_MC.max(dim=1)
            predictions = torch.where(highest > best, place + start, predictions)
            best = torch.maximum(best, highest)
        lse = torch.logaddexp(lse, torch.logsumexp(logits_MC, dim=1))
    return Statistics(lse, label_logit, logit_sum, predictions)


def _tiled_logits(given: Given) -> Iterator[tuple[int, Tensor]]:
    """Yield the logits part by part: (first column, [M, C] in the wide type)."""
    hidden_ME, weight_VE, bias_V, _ = given
    wide = wide_dtype(hidden_ME.dtype)
    for start in range(0, len(weight_VE), PART_COLUMNS):
        columns = slice(start, start + PART_COLUMNS)
        bias_C = None if bias_V is None else bias_V[columns]
        yield start, F.linear(hidden_ME, weight_VE[columns], bias_C).to(wide)


def _finish(
    probabilities_MC: Tensor,
    labels_M: Tensor,
    lse_M: Tensor,
    terms: Terms,
    vocab_size: int,
    start: int,
) -> None:
    """Turn probabilities, in place, into the gradient of the row's loss by its logits.

    Ignored rows hold any label: backward scales them by 0.
    """
    if terms.z_loss > 0.0:
        probabilities_MC *= (1.0 + 2.0 * terms.z_loss * lse_M)[:, None]
    if terms.label_smoothing > 0.0:
        probabilities_MC -= terms.label_smoothing / vocab_size
    here, places_M1 = _places(labels_M, start, probabilities_MC.shape[1])
    hit = here.to(probabilities_MC.dtype) * (terms.label_smoothing - 1.0)
    probabilities_MC.scatter_add_(1, places_M1, hit[:, None])


def _places(labels_M: Tensor, start: int, width: int) -> tuple[Tensor, Tensor]:
    """Say whose label lies in a part of the vocabulary, [M], and where, [M, 1] (else anywhere)."""
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
    def recomputed() -> Iterator[tuple[int, Tensor]]:
        for start, logits_MC in _tiled_logits(given):
            probabilities_MC = logits_MC.sub_(lse_M[:, None]).exp_()
            vocab_size = len(given.weight_VE)
            _finish(probabilities_MC, given.labels_M, lse_M, terms, vocab_size, start)
            yield start, probabilities_MC.to(given.hidden_ME.dtype)

    parts = recomputed() if tiled else [(0, grad_logits_MV)]
    found: tuple[Tensor, Tensor, Tensor]
    found = gradients(parts, scale_M, given, weight_gradient_VE, wanted)
    return found


masked_cross_entropy = define_operator(
    "masked_cross_entropy_aten", _forward, _backward, padded=lambda vocab_size: vocab_size
)
