"""What all objectives have in common: they change a batch, name targets, and take a loss."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple, Protocol

import numpy as np
import torch
from torch import Tensor, nn

from encoder_engine.models import Encoder
from encoder_engine.models.heads import HeadModel
from encoder_engine.packing import PackedBatch, SelectedRows, Sequences

if TYPE_CHECKING:
    import os
    from collections.abc import Mapping, Sequence

    import numpy.typing as npt

    from encoder_engine.models import EncoderOutput
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
    """What a step computes of: the batch as the model sees it, and its targets, int64.

    ``rows``: all that any head reads of the encoder's output; targets that name rows count among
    them. None: heads read all of it.
    """

    batch: PackedBatch
    targets: Mapping[str, Tensor]
    rows: SelectedRows | None = None

    def to(self, device: str | torch.device) -> Inputs:
        """Return the same on another device."""
        targets = {name: target.to(device) for name, target in self.targets.items()}
        rows = None if self.rows is None else self.rows.to(device)
        return Inputs(self.batch.to(device), targets, rows)


class LossSum(NamedTuple):
    """A loss summed over what was asked, and over how many: steps of many batches add both up.

    ``total``: a scalar of float32 (float64 for float64). ``num_correct``: how many of the
    predictions are right, where the model is being evaluated and predicts something.
    """

    total: Tensor
    num_terms: int
    num_correct: Tensor | None = None


class Objective(Protocol):
    """What an encoder is trained to do.

    ``weight`` is that of its mean in the whole loss; ``needs_pooled``: it asks the pooler.
    ``row_targets``: the targets that name rows of the encoder's output, of which the head reads no
    others; None: it reads all rows.
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

    @property
    def row_targets(self) -> tuple[str, ...] | None:
        """Which targets name rows."""

    def corrupt(self, exercise: Exercise, seed: int, /) -> Exercise:
        """Change what the model sees, and add targets: a function of the seed and the places."""

    def count(self, targets: Mapping[str, Tensor]) -> int:
        """Count the terms of the loss, before it is computed."""

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
) -> Inputs:
    """Send a batch through all objectives, in their order."""
    exercise = Exercise(clean=clean, input_ids=clean.input_ids)
    for objective in objectives:
        exercise = objective.corrupt(exercise, seed)
    types = clean.token_type_ids
    batch = PackedBatch(
        input_ids=torch.from_numpy(exercise.input_ids),
        sequences=Sequences(torch.from_numpy(clean.cu_seqlens)),
        token_type_ids=None if types is None else torch.from_numpy(types),
    )
    found = dict(exercise.targets)
    read = _rows_read(clean, objectives, found)
    rows = None if read is None else SelectedRows(torch.from_numpy(read), batch.sequences)
    return Inputs(batch, {name: torch.from_numpy(x) for name, x in found.items()}, rows)


def _rows_read(
    clean: CleanBatch, objectives: Sequence[Objective], targets: dict[str, npt.NDArray[np.int64]]
) -> npt.NDArray[np.int64] | None:
    """List the rows that any head reads, and let targets count among them."""
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


class PretrainingModel(nn.Module):
    """An encoder, computed once a batch, and a head for every objective."""

    def __init__(self, encoder: Encoder, objectives: Sequence[Objective]) -> None:
        super().__init__()
        self.encoder = encoder
        self.objectives = tuple(objectives)
        self.heads = nn.ModuleDict({o.name: o.head(encoder) for o in objectives})
        if not any(objective.needs_pooled for objective in objectives):
            # Nothing would train it.
            encoder.pooler = None

    @property
    def weights(self) -> dict[str, float]:
        """How much each loss counts."""
        return {objective.name: objective.weight for objective in self.objectives}

    @property
    def encoders(self) -> tuple[Encoder, ...]:
        """The encoders that are trained."""
        return (self.encoder,)

    def counts(self, inputs: Inputs) -> dict[str, int]:
        """Count each loss' terms before it is computed."""
        return {o.name: o.count(inputs.targets) for o in self.objectives}

    def forward(self, inputs: Inputs) -> dict[str, LossSum]:
        """Return each objective's loss."""
        needs_pooled = any(objective.needs_pooled for objective in self.objectives)
        output = self.encoder(inputs.batch, output_pooled=needs_pooled, rows=inputs.rows)
        return {
            objective.name: objective.loss(self.heads[objective.name], output, inputs.targets)
            for objective in self.objectives
        }

    def save_pretrained(self, directory: str | os.PathLike[str]) -> None:
        """Write the encoder, with its masked-language-model head where it has one."""
        whole: nn.Module = dict(self.heads.items()).get("mlm", self.encoder)
        assert isinstance(whole, (HeadModel, Encoder))
        whole.save_pretrained(directory)
