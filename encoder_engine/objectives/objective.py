"""The interface of training objectives, and the model that trains several together.

How it works: a clean batch passes through ``corrupt`` of each objective on the CPU, which changes
the model's input and adds targets. The heads of the objectives need the hidden states of some rows
(tokens) only: these are collected, so that the encoder's last block computes no others. Losses are
sums with their numbers of terms: the trainer divides by the terms of the whole step.
"""

from __future__ import annotations

from dataclasses import field
from typing import TYPE_CHECKING, Protocol

import numpy as np
import torch
from torch import Tensor, nn

from encoder_engine.dataclass import dataclass
from encoder_engine.models import Encoder
from encoder_engine.models.heads import HeadModel
from encoder_engine.models.training_model import Inputs, LossSum, Padding, TrainingModel
from encoder_engine.packing import PackedBatch, SelectedRows, Sequences

if TYPE_CHECKING:
    import os
    from collections.abc import Mapping, Sequence

    import numpy.typing as npt

    from encoder_engine.models import EncoderOutput
    from encoder_engine.packing.clean import CleanBatch

__all__ = ["CorruptedBatch", "Objective", "PretrainingModel", "prepare"]


@dataclass(frozen=True, kw_only=True, eq=False)
class CorruptedBatch:
    """A batch on its way through the training objectives, which change it one after another.

    ``clean``: the batch before any change.
    ``input_ids`` int32 [T]: the model's input.
    ``targets``: int64 arrays, by the names that the losses read.
    """

    clean: CleanBatch
    input_ids: npt.NDArray[np.int32]
    targets: Mapping[str, npt.NDArray[np.int64]] = field(default_factory=dict)


class Objective(Protocol):
    """A training objective: masks or changes the model's input, makes a head, computes a loss."""

    @property
    def name(self) -> str:
        """The name of the objective's loss and head."""

    @property
    def weight(self) -> float:
        """The weight of the objective's mean loss in the total loss."""

    @property
    def needs_pooled(self) -> bool:
        """Return whether the loss reads the pooler's output."""

    @property
    def row_targets(self) -> tuple[str, ...] | None:
        """Names of targets that hold indices of tokens which the head reads; None: all tokens."""

    @property
    def paddings(self) -> Mapping[str, Padding] | None:
        """How the targets are padded for CUDA graphs; see :meth:`TrainingModel.paddings`."""

    def corrupt(self, corrupted: CorruptedBatch, seed: int, /) -> CorruptedBatch:
        """Return the batch with changed input and further targets, a function of seed and batch."""

    def count(self, targets: Mapping[str, Tensor]) -> int:
        """Return the number of terms of the loss, given the targets."""

    def head(self, encoder: Encoder) -> nn.Module:
        """Make the objective's head, randomly initialised; the head may contain the encoder."""

    def loss(
        self, head: nn.Module, output: EncoderOutput, targets: Mapping[str, Tensor]
    ) -> LossSum:
        """Return the loss, summed over its terms, given the encoder's output and the targets."""


def prepare(clean: CleanBatch, objectives: Sequence[Objective], *, seed: int) -> Inputs:
    """Apply objectives to a clean batch, in their order; return the model's input and targets."""
    corrupted = CorruptedBatch(clean=clean, input_ids=clean.input_ids)
    for objective in objectives:
        corrupted = objective.corrupt(corrupted, seed)
    types = clean.token_type_ids
    batch = PackedBatch(
        input_ids=torch.from_numpy(corrupted.input_ids),
        sequences=Sequences(torch.from_numpy(clean.cu_seqlens)),
        token_type_ids=None if types is None else torch.from_numpy(types),
    )
    found = dict(corrupted.targets)
    read = _rows_read(clean, objectives, found)
    rows = None if read is None else SelectedRows(torch.from_numpy(read), batch.sequences)
    return Inputs(batch, {name: torch.from_numpy(x) for name, x in found.items()}, rows)


def _rows_read(
    clean: CleanBatch, objectives: Sequence[Objective], targets: dict[str, npt.NDArray[np.int64]]
) -> npt.NDArray[np.int64] | None:
    """Return the indices of the tokens that the objectives' heads read; None: all tokens.

    Targets that are such indices become indices into the result, in place.
    """
    names: list[str] = []
    for objective in objectives:
        if objective.row_targets is None:
            return None
        names += objective.row_targets
    parts = [targets[name] for name in names]
    if any(objective.needs_pooled for objective in objectives):
        parts.append(clean.cu_seqlens[:-1][clean.lengths > 0].astype(np.int64))
    read = np.unique(np.concatenate([np.zeros(0, np.int64), *parts]))
    for name in names:
        targets[name] = np.searchsorted(read, targets[name]).astype(np.int64)
    return read


class PretrainingModel(TrainingModel):
    """An encoder, computed once per batch, with a head for each objective."""

    def __init__(self, encoder: Encoder, objectives: Sequence[Objective]) -> None:
        super().__init__()
        self.encoder = encoder
        self.objectives = tuple(objectives)
        self.weights = {objective.name: objective.weight for objective in objectives}
        self.heads = nn.ModuleDict({o.name: o.head(encoder) for o in objectives})
        if not any(objective.needs_pooled for objective in objectives):
            # No loss would train the pooler.
            encoder.pooler = None

    def counts(self, inputs: Inputs) -> dict[str, int]:
        """Return the number of terms of each loss, before it is computed."""
        return {o.name: o.count(inputs.targets) for o in self.objectives}

    def paddings(self, inputs: Inputs) -> Mapping[str, Padding] | None:
        """Return how the targets of all objectives are padded for CUDA graphs; None: no graphs."""
        del inputs
        found: dict[str, Padding] = {}
        for objective in self.objectives:
            if objective.paddings is None:
                return None
            found |= objective.paddings
        return found

    def forward(self, inputs: Inputs) -> dict[str, LossSum]:
        """Return the loss of each objective by its name, summed over its terms."""
        needs_pooled = any(objective.needs_pooled for objective in self.objectives)
        output = self.encoder(inputs.batch, output_pooled=needs_pooled, rows=inputs.rows)
        return {
            objective.name: objective.loss(self.heads[objective.name], output, inputs.targets)
            for objective in self.objectives
        }

    def save_pretrained(self, directory: str | os.PathLike[str]) -> None:
        """Write the encoder, with its masked-language-model head if it has one."""
        whole: nn.Module = dict(self.heads.items()).get("mlm", self.encoder)
        assert isinstance(whole, (HeadModel, Encoder))
        whole.save_pretrained(directory)
