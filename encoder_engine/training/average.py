"""A moving average of the weights."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from collections.abc import Iterator

    from torch import Tensor, nn

__all__ = ["Average"]


class Average:
    """``average = decay * average + (1 - decay) * weight`` after every step, from the first on."""

    def __init__(self, model: nn.Module, decay: float) -> None:
        self._decay = decay
        self._kept = {n: p.detach().clone() for n, p in model.named_parameters()}

    @torch.no_grad()
    def follow(self, model: nn.Module) -> None:
        """Take a step's weights in."""
        for name, parameter in model.named_parameters():
            self._kept[name].lerp_(parameter, 1.0 - self._decay)

    @contextmanager
    def in_place_of(self, model: nn.Module) -> Iterator[None]:
        """Let the model compute with the average meanwhile."""
        self._swap(model)
        try:
            yield
        finally:
            self._swap(model)

    @torch.no_grad()
    def _swap(self, model: nn.Module) -> None:
        for name, parameter in model.named_parameters():
            held = parameter.detach().clone()
            parameter.copy_(self._kept[name])
            self._kept[name].copy_(held)

    def tensors(self) -> dict[str, Tensor]:
        """Name all that a checkpoint keeps of it."""
        return {f"average.{name}": kept for name, kept in self._kept.items()}
