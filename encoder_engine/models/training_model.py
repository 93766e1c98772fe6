"""The base of models that a training loop trains, and their input.

Losses are sums, each with its number of terms: the loop divides by the terms of the whole step,
over all micro-batches and processes.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from types import MappingProxyType
from typing import TYPE_CHECKING, ClassVar, NamedTuple

import torch
from torch import nn

from encoder_engine.packing.sequences import moved

if TYPE_CHECKING:
    import os
    from collections.abc import Mapping

    from torch import Tensor

    from encoder_engine.models.encoder import Encoder
    from encoder_engine.packing import PackedBatch, SelectedRows

__all__ = ["IGNORED", "CoupledModel", "Inputs", "LossSum", "Padding", "TrainingModel"]

# The label of a row without a loss, as in torch.
IGNORED = -100


class Inputs(NamedTuple):
    """The input of a micro-batch.

    ``batch``: the tokens; corrupted ones in pretraining.
    ``targets``: tensors by name: int64 classes and rows, float32 scores.
    ``rows``: the rows of the encoder's output that any head reads; row numbers among the targets
    are indices into them. None: all rows.
    ``gradient``: for a :class:`CoupledModel`, the gradient of the step's loss on the vectors.
    """

    batch: PackedBatch
    targets: Mapping[str, Tensor]
    rows: SelectedRows | None = None
    gradient: Tensor | None = None

    def to(self, device: str | torch.device) -> Inputs:
        """Return a copy of the input on another device, asynchronously for a CUDA device."""
        targets = {name: moved(target, device) for name, target in self.targets.items()}
        rows = None if self.rows is None else self.rows.to(device)
        gradient = None if self.gradient is None else self.gradient.to(device)
        return Inputs(self.batch.to(device), targets, rows, gradient)


class Padding(NamedTuple):
    """How a target is padded to the fixed size of a layout, for CUDA graphs.

    ``value``: the value of padding entries, which must not contribute to a loss or gradient. None:
    the target is not padded, and the model reads no padding row or sequence of the layout.
    ``by_sequence``: the target has an entry for each sequence of the layout.
    """

    value: float | None = None
    by_sequence: bool = False


class LossSum(NamedTuple):
    """A summed loss with its number of terms; both add up over micro-batches.

    ``total``: a scalar of float32 (float64 for float64 weights).
    ``num_terms``: the number of terms in the sum.
    ``num_correct``: the number of right predictions, in evaluation; None: no predictions.
    """

    total: Tensor
    num_terms: int
    num_correct: Tensor | None = None


class TrainingModel(nn.Module, ABC):
    """The base class of models that the training loop trains: they return summed losses.

    ``encoder``: the encoder that the run is for.
    ``weights``: the weight of each loss's mean in the total loss.
    ``rate_factors``: factors on the learning rate, by parameter name; 1 for other parameters.
    """

    encoder: Encoder
    weights: dict[str, float]
    rate_factors: Mapping[str, float] = MappingProxyType({})

    @property
    def encoders(self) -> tuple[Encoder, ...]:
        """The encoders that are trained; a model with several overrides this."""
        return (self.encoder,)

    @abstractmethod
    def counts(self, inputs: Inputs) -> dict[str, int]:
        """Return the number of terms of each loss, before the losses are computed."""

    def paddings(self, inputs: Inputs) -> Mapping[str, Padding] | None:
        """Return how each target that the losses read is padded, for CUDA graphs.

        Graphs need fixed sizes: padding tokens, sequences and rows follow those of the batch. None:
        no graphs, because padding would change the losses, or the host reads values.
        """
        del inputs
        return None

    @abstractmethod
    def forward(self, inputs: Inputs) -> dict[str, LossSum]:
        """Return each loss of a micro-batch, by name."""

    @abstractmethod
    def save_pretrained(self, directory: str | os.PathLike[str]) -> None:
        """Write the trained model in transformers' layout."""


class CoupledModel(TrainingModel):
    """The base of models whose loss couples all examples of a step, such as in-batch negatives.

    For a step of several micro-batches, the loop computes the gradient from all micro-batches'
    vectors: see ``training/step/grad_cache.py``.

    ``targets_of_vectors``: the names of targets that :meth:`vectors` reads, and :meth:`losses` does
    not; they may be large, and are not gathered over the step.
    """

    targets_of_vectors: ClassVar[tuple[str, ...]] = ()

    @abstractmethod
    def vectors(self, inputs: Inputs) -> Tensor:
        """Compute the vectors of a micro-batch that the losses read, [n, D]."""

    @abstractmethod
    def losses(
        self, vectors: Tensor, targets: Mapping[str, Tensor], share: tuple[int, int] = (0, 1)
    ) -> dict[str, LossSum]:
        """Return each loss of a whole step.

        ``vectors``: those of its micro-batches one after the other, in float32 or wider.
        ``targets``: the micro-batches' targets, concatenated too; they must not hold row numbers.
            Targets in ``targets_of_vectors`` may be missing.
        ``share``: (rank, number of ranks): compute this rank's part of the sums; all parts add up
            to the loss.
        """

    def embed(self, inputs: Inputs) -> Tensor:
        """Return :meth:`vectors` in float32, or in float64 for float64 weights."""
        found = self.vectors(inputs)
        return found.to(torch.promote_types(found.dtype, torch.float32))

    def forward(self, inputs: Inputs) -> dict[str, LossSum]:
        """Return the losses of a micro-batch that is a whole step.

        With ``inputs.gradient`` return the inner product of vectors and gradient, under the name
        ``coupled``: its gradient on the weights is the micro-batch's part of the step's gradient.
        """
        # Not embed: FSDP gathers the weights around it, as it does around this method.
        found = self.vectors(inputs)
        vectors = found.to(torch.promote_types(found.dtype, torch.float32))
        if inputs.gradient is not None:
            return {"coupled": LossSum((vectors * inputs.gradient).sum(), 1)}
        with torch.autocast(vectors.device.type, enabled=False):
            return self.losses(vectors, inputs.targets)
