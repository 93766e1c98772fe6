"""The model of an embedding task: an encoder, pooling, and a loss over a step's vectors."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
import torch.nn.functional as F  # noqa: N812

from encoder_engine import ops
from encoder_engine.embedding.directory.recipe import PoolingRecipe
from encoder_engine.embedding.saving.sentence_directory import write_sentence_settings
from encoder_engine.models.module_stack import pooled_rows
from encoder_engine.models.training_model import CoupledModel, Inputs, LossSum
from encoder_engine.objectives.vectors.matryoshka import Matryoshka
from encoder_engine.tasks.embedders.losses import count_terms, step_loss
from encoder_engine.tasks.task import TaskModel

if TYPE_CHECKING:
    import os
    from collections.abc import Mapping

    import numpy.typing as npt
    from torch import Tensor

    from encoder_engine.models.encoder import Encoder
    from encoder_engine.tasks.embedders.settings import EmbeddingSettings

__all__ = ["EmbeddingModel"]

# Pooling modes that read one row of each sequence: the last block computes no other.
_ONE_ROW = (("cls",), ("lasttoken",))


class EmbeddingModel(CoupledModel, TaskModel):
    """Pools one vector per text, and computes the loss of all vectors of a step."""

    def __init__(self, encoder: Encoder, task: EmbeddingSettings) -> None:
        super().__init__()
        self.encoder, self.task = encoder, task
        self.loss_name = task.loss or "in_batch"
        self.weights = {self.loss_name: 1.0}
        self.pooling = task.pooling or ("mean",)
        if encoder.pooler is not None:
            # It is saved as it came: no loss trains it.
            encoder.pooler.requires_grad_(False)
        self.matryoshka = None
        if task.matryoshka:
            self.matryoshka = Matryoshka(
                dimensions=task.matryoshka, weights=task.matryoshka_weights or None
            )
        self.train(encoder.training)

    @property
    def encoders(self) -> tuple[Encoder, ...]:
        """The encoder."""
        return (self.encoder,)

    def counts(self, inputs: Inputs) -> dict[str, int]:
        """Return the number of terms of the loss."""
        return {self.loss_name: count_terms(self.loss_name, inputs.targets)}

    def vectors(self, inputs: Inputs) -> Tensor:
        """Return the pooled vectors of all texts, [S, D]."""
        batch = inputs.batch
        rows = None
        if self.pooling in _ONE_ROW:
            rows = pooled_rows(batch.sequences, self.pooling[0])
        output = self.encoder(batch, output_pooled=False, rows=rows)
        hidden, sequences = output.last_hidden_state, output.sequences
        found = torch.cat([ops.pooling(hidden, sequences, mode=m) for m in self.pooling], 1)
        return F.normalize(found, dim=1) if self.task.normalized else found

    def losses(
        self, vectors: Tensor, targets: Mapping[str, Tensor], share: tuple[int, int] = (0, 1)
    ) -> dict[str, LossSum]:
        """Return the loss of a whole step."""

        def loss(vectors_SD: Tensor) -> Tensor:
            return step_loss(self.task, vectors_SD, targets, share)

        total = loss(vectors) if self.matryoshka is None else self.matryoshka(loss, vectors)
        return {self.loss_name: LossSum(total, count_terms(self.loss_name, targets))}

    @torch.no_grad()
    def outputs(self, inputs: Inputs) -> dict[str, npt.NDArray[Any]]:
        """Compute ``vectors``, float32 or float64 [S, D]."""
        return {"vectors": self.embed(inputs).cpu().numpy()}

    def save_pretrained(self, directory: str | os.PathLike[str]) -> None:
        """Write the encoder and the settings of a ``SentenceTransformer``."""
        folder, task, spec = Path(directory), self.task, self.encoder.spec
        self.encoder.save_pretrained(folder)
        recipe = PoolingRecipe(
            encoder_directory=folder,
            pooling=self.pooling,
            normalized=bool(task.normalized),
            prompts={"query": "", "document": ""} | dict(task.prompts),
            similarity=task.similarity,
        )
        write_sentence_settings(
            *(folder, recipe, spec),
            max_seq_length=task.max_seq_length,
            dimension=spec.width * len(self.pooling),
            base_model=None,
        )
