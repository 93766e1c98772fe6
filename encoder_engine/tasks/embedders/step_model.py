"""The base of models that embed texts, whose loss compares all vectors of a step."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

import torch

from encoder_engine.models.training_model import CoupledModel, Inputs
from encoder_engine.tasks.embedders.losses import count_terms
from encoder_engine.tasks.items import FEATURES
from encoder_engine.tasks.models.task_model import TaskModel

if TYPE_CHECKING:
    from collections.abc import Mapping

    import numpy.typing as npt
    from torch import Tensor

    from encoder_engine.models.encoder import Encoder

__all__ = ["StepModel"]


class StepModel(CoupledModel, TaskModel):
    """A model whose loss compares the vectors of all texts of a training step.

    ``loss_name``: the name of the loss; None: ``in_batch`` negatives.
    """

    targets_of_vectors: ClassVar[tuple[str, ...]] = (FEATURES,)

    def __init__(self, encoder: Encoder, loss_name: str | None) -> None:
        super().__init__()
        self.encoder = encoder
        self.loss_name: str = loss_name or "in_batch"
        self.weights = {self.loss_name: 1.0}
        if encoder.pooler is not None:
            # The pooler is saved as it was loaded: no loss trains it.
            encoder.pooler.requires_grad_(False)
        self.train(encoder.training)

    def counts(self, inputs: Inputs) -> dict[str, int]:
        """Return the number of terms of each loss in a micro-batch."""
        return self.count_losses(inputs.targets)

    def count_losses(self, targets: Mapping[str, Tensor]) -> dict[str, int]:
        """Return the number of terms of each loss, given the targets of a micro-batch or step."""
        return {self.loss_name: count_terms(self.loss_name, targets)}

    @torch.no_grad()
    def outputs(self, inputs: Inputs) -> dict[str, npt.NDArray[Any]]:
        """Compute the array ``vectors``: one vector per text, or per token that MaxSim compares."""
        return {"vectors": self.embed(inputs).cpu().numpy()}
