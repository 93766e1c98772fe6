"""The base of models that a training loop trains, and their input.

Losses are sums with their numbers of terms: the loop divides by the terms of the whole step, over
all micro-batches and processes.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from types import MappingProxyType
from typing import TYPE_CHECKING, NamedTuple

from torch import nn

if TYPE_CHECKING:
    import os
    from collections.abc import Mapping

    import torch
    from torch import Tensor

    from encoder_engine.models.encoder import Encoder
    from encoder_engine.packing import PackedBatch, SelectedRows

__all__ = ["Inputs", "LossSum", "TrainingModel"]


class Inputs(NamedTuple):
    """The input of a micro-batch.

    ``batch``: the tokens; corrupted ones in pretraining.
    ``targets``: tensors by name: int64 classes and rows, float32 scores.
    ``rows``: the rows of the encoder's output that any head reads; targets that name rows index
    these. None: all rows.
    """

    batch: PackedBatch
    targets: Mapping[str, Tensor]
    rows: SelectedRows | None = None

    def to(self, device: str | torch.device) -> Inputs:
        """Return a copy on another device."""
        targets = {name: target.to(device) for name, target in self.targets.items()}
        rows = None if self.rows is None else self.rows.to(device)
        return Inputs(self.batch.to(device), targets, rows)


class LossSum(NamedTuple):
    """A summed loss with its number of terms; both add up over micro-batches.

    ``total``: a scalar of float32 (float64 for float64 weights).
    ``num_terms``: the number of terms in the sum.
    ``num_correct``: right predictions, in evaluation; None where nothing is predicted.
    """

    total: Tensor
    num_terms: int
    num_correct: Tensor | None = None


class TrainingModel(nn.Module, ABC):
    """The base of what the training loop trains: summed losses of a step's input.

    ``encoder``: the encoder that the run is for.
    ``weights``: the weight of each loss's mean in the whole loss.
    ``rate_factors``: factors on the learning rate, by parameter name; the others have 1.
    """

    encoder: Encoder
    weights: dict[str, float]
    rate_factors: Mapping[str, float] = MappingProxyType({})

    @property
    @abstractmethod
    def encoders(self) -> tuple[Encoder, ...]:
        """The encoders that are trained."""

    @abstractmethod
    def counts(self, inputs: Inputs) -> dict[str, int]:
        """Return the number of terms of each loss, before it is computed."""

    @abstractmethod
    def forward(self, inputs: Inputs) -> dict[str, LossSum]:
        """Return each loss."""

    @abstractmethod
    def save_pretrained(self, directory: str | os.PathLike[str]) -> None:
        """Write the trained model in transformers' layout."""
