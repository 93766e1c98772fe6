"""The exponential moving average (EMA) of the weights."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from contextlib import AbstractContextManager

    from torch import Tensor, nn

__all__ = ["Average", "swapped"]


@contextmanager
def swapped(weights: Mapping[str, Tensor], model: nn.Module) -> Iterator[None]:
    """Exchange a model's weights with ``weights`` within this context, by name and in place."""
    _swap(weights, model)
    try:
        yield
    finally:
        _swap(weights, model)


@torch.no_grad()
def _swap(weights: Mapping[str, Tensor], model: nn.Module) -> None:
    parameters = dict(model.named_parameters())
    for name, weight in weights.items():
        own = parameters[name].detach().clone()
        parameters[name].copy_(weight)
        weight.copy_(own)


class Average:
    """Keeps the EMA of a model's weights: ``average = decay * average + (1 - decay) * weight``."""

    def __init__(self, model: nn.Module, decay: float) -> None:
        self._decay = decay
        self._average = {n: p.detach().clone() for n, p in model.named_parameters()}

    @torch.no_grad()
    def follow(self, model: nn.Module) -> None:
        """Update the average with the model's weights; called after each training step."""
        for name, parameter in model.named_parameters():
            self._average[name].lerp_(parameter, 1.0 - self._decay)

    def in_place_of(self, model: nn.Module) -> AbstractContextManager[None]:
        """Give the model the averaged weights within this context; afterwards its own again."""
        return swapped(self._average, model)

    def tensors(self) -> dict[str, Tensor]:
        """Return the averaged weights by their names in the run's checkpoints."""
        return {f"average.{name}": average for name, average in self._average.items()}
