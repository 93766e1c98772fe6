"""What all objectives have in common: they change a batch, name targets, and take a loss."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple, Protocol

import torch
from torch import Tensor, nn

from encoder_engine.packing import PackedBatch, Sequences

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import numpy as np
    import numpy.typing as npt

    from encoder_engine.models import Encoder, EncoderOutput
    from encoder_engine.packing.clean import CleanBatch

__all__ = ["Exercise", "Inputs", "LossSum", "Objective", "PretrainingModel", "prepare"]


@dataclass(frozen=True, kw_only=True, eq=False)
class Exercise:
    """A batch on its way through the objectives.

    ``input_ids`` int32 [T]: what the model is to see; ``targets``: what it is to say, by the names
    under which the losses look for it.
    """

    clean: CleanBatch
    input_ids: npt.NDArray[np.int32]
    targets: Mapping[str, npt.NDArray[np.int64]] = field(default_factory=dict)


class Inputs(NamedTuple):
    """What a step computes of: the batch as the model sees it, and its targets, int64."""

    batch: PackedBatch
    targets: Mapping[str, Tensor]


class LossSum(NamedTuple):
    """A loss summed over what was asked, and over how many: steps of many batches add both up.

    ``total``: a scalar of float32 (float64 for float64).
    """

    total: Tensor
    num_terms: int


class Objective(Protocol):
    """What an encoder is trained to do.

    ``weight`` is that of its mean in the whole loss; ``needs_pooled``: it asks the pooler.
    """

    @property
    def name(self) -> str:
        """What losses and heads are called by."""

    @property
    def weight(self) -> float:
        """How much its mean counts."""

    @property
    def needs_pooled(self) -> bool:
        """Whether it reads the pooler's output."""

    def corrupt(self, exercise: Exercise, seed: int, /) -> Exercise:
        """Change what the model sees, and add targets: a function of the seed and the places."""

    def head(self, encoder: Encoder) -> nn.Module:
        """Make the head, randomly initialised; it may hold the encoder."""

    def loss(
        self, head: nn.Module, output: EncoderOutput, targets: Mapping[str, Tensor]
    ) -> LossSum:
        """Compute the loss of an encoder's output."""


def prepare(
    clean: CleanBatch,
    objectives: Sequence[Objective],
    *,
    seed: int,
    device: str | torch.device = "cpu",
) -> Inputs:
    """Send a batch through all objectives, in their order, and to the device."""
    exercise = Exercise(clean=clean, input_ids=clean.input_ids)
    for objective in objectives:
        exercise = objective.corrupt(exercise, seed)
    types = clean.token_type_ids
    batch = PackedBatch(
        input_ids=torch.from_numpy(exercise.input_ids),
        sequences=Sequences(torch.from_numpy(clean.cu_seqlens)),
        token_type_ids=None if types is None else torch.from_numpy(types),
    )
    targets = {name: torch.from_numpy(x).to(device) for name, x in exercise.targets.items()}
    return Inputs(batch.to(device), targets)


class PretrainingModel(nn.Module):
    """An encoder, computed once a batch, and a head for every objective."""

    def __init__(self, encoder: Encoder, objectives: Sequence[Objective]) -> None:
        super().__init__()
        self.encoder = encoder
        self.objectives = tuple(objectives)
        self.heads = nn.ModuleDict({o.name: o.head(encoder) for o in objectives})

    def forward(self, inputs: Inputs) -> dict[str, LossSum]:
        """Return each objective's loss."""
        needs_pooled = any(objective.needs_pooled for objective in self.objectives)
        output = self.encoder(inputs.batch, output_pooled=needs_pooled)
        return {
            objective.name: objective.loss(self.heads[objective.name], output, inputs.targets)
            for objective in self.objectives
        }
