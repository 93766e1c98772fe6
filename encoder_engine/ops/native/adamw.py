"""The gradient's norm and AdamW's step by the C++ extension."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import torch

from encoder_engine import _native

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch import Tensor

__all__ = ["AdamWTensor", "gradient_norm", "take_step"]


class AdamWTensor(NamedTuple):
    """A contiguous float32 parameter with its gradient and moments, and the factors of its update.

    ``learning_rate``: the learning rate, divided by ``1 - beta1^step``.
    ``decay``: ``1 - learning rate * weight decay``.
    ``correction``: ``1 / sqrt(1 - beta2^step)``.
    """

    parameter: Tensor
    gradient: Tensor
    first: Tensor
    second: Tensor
    learning_rate: float
    decay: float
    correction: float


def gradient_norm(gradients: Sequence[Tensor]) -> float:
    """Return the Euclidean norm of contiguous float32 tensors together.

    Squares are summed by fixed chunks: the bits do not depend on the number of threads.
    """
    places = [(x.data_ptr(), x.numel()) for x in gradients]
    return float(_native.sum_squares(places, torch.get_num_threads()) ** 0.5)


def take_step(
    tensors: Sequence[AdamWTensor],
    *,
    betas: tuple[float, float],
    epsilon: float,
    gradient_factor: float,
) -> None:
    """Update parameters and moments in one pass; ``gradient_factor`` multiplies the gradients."""
    places = [
        (
            *(x.parameter.data_ptr(), x.gradient.data_ptr()),
            *(x.first.data_ptr(), x.second.data_ptr(), x.parameter.numel()),
            *(x.learning_rate, x.decay, x.correction),
        )
        for x in tensors
    ]
    _native.take_adamw_step(places, *betas, epsilon, gradient_factor, torch.get_num_threads())
