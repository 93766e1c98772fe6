"""The masked projection by the Triton kernels, as a traceable, differentiable PyTorch operator."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .backward import tiled_gradients
from .config import padded, whole_vectors
from .differentiable import define_operator
from .forward import stored_statistics, tiled_statistics
from .gemm import gradients
from .terms import Found

if TYPE_CHECKING:
    from torch import Tensor

    from .terms import Given, Terms, Wanted


def _forward(given: Given, terms: Terms, *, tiled: bool, predict: bool, keep: bool) -> Found:
    if tiled:
        nothing = given.hidden_ME.new_empty(0, 0)
        return Found(tiled_statistics(given, terms, predict=predict), nothing)
    return stored_statistics(given, terms, predict=predict, keep=keep)


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
    if tiled:
        parts = tiled_gradients(given, lse_M, terms)
    else:
        columns = whole_vectors(len(given.weight_VE), given.weight_VE.element_size())
        parts = ((c.start, grad_logits_MV[:, c]) for c in columns)
    return gradients(parts, scale_M, given, weight_gradient_VE, wanted)


masked_cross_entropy = define_operator("masked_cross_entropy", _forward, _backward, padded)
