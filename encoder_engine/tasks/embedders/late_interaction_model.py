"""The model of the late-interaction task: an encoder, a projection, and MaxSim's losses.

Dimensions: S texts of a step, n token vectors that MaxSim compares, D features.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import torch
import torch.nn.functional as F  # noqa: N812

from encoder_engine.embedding.saving.other_directories import write_late_interaction_settings
from encoder_engine.models.encoder import Encoder
from encoder_engine.models.init import draw_weights
from encoder_engine.models.linear import Linear
from encoder_engine.models.training_model import Inputs, LossSum
from encoder_engine.objectives.vectors.in_batch import Candidates
from encoder_engine.objectives.vectors.late_interaction import (
    late_interaction_negatives,
    paired_max_similarity,
)
from encoder_engine.opening.recipe import Settings, encoder_directory
from encoder_engine.packing.module_stack import DenseModule, ModuleStack
from encoder_engine.tasks.embedders.examples import COUNTED, NUM_VECTORS, UNATTENDED
from encoder_engine.tasks.embedders.layout import StepLayout, ranges
from encoder_engine.tasks.embedders.losses import list_loss, text_ids_of
from encoder_engine.tasks.embedders.step_model import StepModel
from encoder_engine.tasks.items import FEATURES

if TYPE_CHECKING:
    import os
    from collections.abc import Mapping
    from typing import Self

    import numpy.typing as npt
    from torch import Tensor

    from encoder_engine.tasks.embedders.settings import LateInteractionSettings
    from encoder_engine.tasks.items import SavedModel

__all__ = ["LateInteractionModel"]


class LateInteractionModel(StepModel):
    """Projects an encoder's hidden states to unit vectors; computes the loss of a step's texts."""

    targets_of_vectors = (FEATURES, COUNTED, UNATTENDED)

    def __init__(self, encoder: Encoder, task: LateInteractionSettings) -> None:
        super().__init__(encoder, task.loss)
        self.task = task
        self.projection = Linear(encoder.spec.width, task.dimension, bias=False)
        with torch.no_grad():
            draw_weights(self.projection, encoder.spec.initializer_range)
        self.projection.to(device=encoder.device, dtype=encoder.dtype)
        self.train(encoder.training)

    @classmethod
    def load(cls, saved: SavedModel, task: LateInteractionSettings) -> Self:
        """Load a saved encoder, in evaluation mode; the projection is random."""
        folder = encoder_directory(Path(saved.directory))
        return cls(Encoder.from_pretrained(folder, *saved[1:]), task).eval()

    @torch.no_grad()
    def project_by(self, weight_NK: npt.NDArray[np.float32]) -> None:
        """Copy a weight [N, K] into the model's projection."""
        self.projection.weight.copy_(torch.from_numpy(weight_NK))

    def features(self, inputs: Inputs) -> Tensor:
        """Compute the hidden states of the tokens that MaxSim compares, [n, width]."""
        targets = inputs.targets
        unattended = targets[UNATTENDED].tolist()
        if any(unattended):
            batch = inputs.batch.to(self.encoder.device)
            hidden_TD = self.encoder.encode_unattended(batch, unattended)
        else:
            hidden_TD = self.encoder(inputs.batch, output_pooled=False).last_hidden_state
        counted_n = targets[COUNTED].nonzero()[:, 0].to(hidden_TD.device)
        return F.embedding(counted_n, hidden_TD)

    def vectors(self, inputs: Inputs) -> Tensor:
        """Return the vectors of the tokens that MaxSim compares, [n, D]."""
        rows = inputs.targets.get(FEATURES)
        return F.normalize(self.projection(self.features(inputs) if rows is None else rows), dim=1)

    def losses(
        self, vectors: Tensor, targets: Mapping[str, Tensor], share: tuple[int, int] = (0, 1)
    ) -> dict[str, LossSum]:
        """Return the loss of all texts of a step by its name, summed over its terms.

        ``share``: (rank, number of ranks): the part of the loss that this process computes.
        """
        total = self._loss(vectors, targets, StepLayout.of(targets), share)
        return {self.loss_name: LossSum(total, self.count_losses(targets)[self.loss_name])}

    def _loss(
        self,
        vectors_nD: Tensor,
        targets: Mapping[str, Tensor],
        layout: StepLayout,
        share: tuple[int, int],
    ) -> Tensor:
        counts_S = targets[NUM_VECTORS]

        def of_texts(places: Tensor) -> tuple[Tensor, npt.NDArray[np.int64]]:
            """Return the vectors of the texts ``places``, and the texts' offsets, on the CPU."""
            counts, starts = counts_S[places], (counts_S.cumsum(0) - counts_S)[places]
            ends = np.zeros(len(places) + 1, np.int64)
            ends[1:] = counts.cumsum(0).cpu().numpy()
            return F.embedding(ranges(starts, counts), vectors_nD), ends

        if self.loss_name == "in_batch":
            return late_interaction_negatives(
                *of_texts(layout.queries_B),
                *of_texts(layout.documents),
                Candidates(
                    owners_C=layout.owners,
                    num_rows=len(layout.positives_B),
                    ids=text_ids_of(targets, layout),
                ),
                scale=self.task.scale,
                share=share,
            )
        if share[0] != 0:
            return vectors_nD.new_zeros(())
        places_C, lists_C = layout.by_item()
        scores_C = paired_max_similarity(
            *of_texts(layout.queries_I), *of_texts(places_C), lists_C.cpu().numpy()
        )
        return list_loss(
            *(self.loss_name, scores_C, targets, layout), temperature=self.task.temperature
        )

    def save_pretrained(self, directory: str | os.PathLike[str]) -> None:
        """Write encoder, projection and settings as a ``MultiVectorEncoder`` directory."""
        folder, task, expansion = Path(directory), self.task, None
        if task.expand_queries:
            attend = bool(task.attend_expansion)
            expansion = {"strategy": "fixed", "length": task.query_length, "attend": attend}
        projection_ND = self.projection.weight.detach().float().cpu().numpy()
        self.encoder.save_pretrained(folder)
        write_late_interaction_settings(
            *(folder, self.encoder.spec, ModuleStack((DenseModule(weight_NK=projection_ND),))),
            settings=Settings(prompts=dict(task.prompts)),
            max_seq_length=task.max_seq_length,
            query_length=task.query_length,
            document_length=task.document_length,
            expansion=expansion,
            skipped_words=task.skipped_words or (),
        )
