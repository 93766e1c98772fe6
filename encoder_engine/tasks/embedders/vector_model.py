"""The model of an embedding task: an encoder, pooling, and a loss over a step's vectors."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import torch
import torch.nn.functional as F  # noqa: N812

from encoder_engine import ops
from encoder_engine.embedding.saving.sentence_directory import write_sentence_settings
from encoder_engine.models.encoder import Encoder
from encoder_engine.models.module_stack import pooled_rows
from encoder_engine.models.training_model import Inputs, LossSum
from encoder_engine.objectives.vectors.matryoshka import Matryoshka
from encoder_engine.opening.recipe import PoolingRecipe, encoder_directory
from encoder_engine.tasks.embedders.losses import step_loss
from encoder_engine.tasks.embedders.step_model import StepModel

if TYPE_CHECKING:
    import os
    from collections.abc import Mapping
    from typing import Self

    from torch import Tensor

    from encoder_engine.tasks.embedders.settings import EmbeddingSettings
    from encoder_engine.tasks.items import SavedModel

__all__ = ["EmbeddingModel"]

# Pooling modes that read one row of each sequence: the last block computes no other.
_ONE_ROW = (("cls",), ("lasttoken",))


class EmbeddingModel(StepModel):
    """Pools one vector per text from an encoder; computes the loss of a step's vectors."""

    def __init__(self, encoder: Encoder, task: EmbeddingSettings) -> None:
        super().__init__(encoder, task.loss)
        self.task = task
        self.pooling = task.pooling or ("mean",)
        self.matryoshka = None
        if task.matryoshka:
            self.matryoshka = Matryoshka(
                dimensions=task.matryoshka, weights=task.matryoshka_weights or None
            )

    @classmethod
    def load(cls, saved: SavedModel, task: EmbeddingSettings) -> Self:
        """Load a model directory that :meth:`save_pretrained` wrote."""
        folder = encoder_directory(Path(saved.directory))
        return cls(Encoder.from_pretrained(folder, *saved[1:]), task)

    def vectors(self, inputs: Inputs) -> Tensor:
        """Return the pooled vectors of all texts, [S, D]."""
        batch = inputs.batch
        rows = None
        if self.pooling in _ONE_ROW:
            rows = pooled_rows(batch.sequences, self.pooling[0])
        output = self.encoder(batch, output_pooled=False, rows=rows)
        hidden, sequences = output.last_hidden_state, output.sequences
        # Also if the residual stream is bfloat16: a loss compares vectors by small differences.
        hidden = hidden.to(torch.promote_types(hidden.dtype, torch.float32))
        found = torch.cat([ops.pooling(hidden, sequences, mode=m) for m in self.pooling], 1)
        return F.normalize(found, dim=1) if self.task.normalized else found

    def losses(
        self, vectors: Tensor, targets: Mapping[str, Tensor], share: tuple[int, int] = (0, 1)
    ) -> dict[str, LossSum]:
        """Return the loss of a step, summed over its terms; ``share``: see :func:`step_loss`."""

        def loss(vectors_SD: Tensor) -> Tensor:
            return step_loss(self.task, vectors_SD, targets, share)

        total = loss(vectors) if self.matryoshka is None else self.matryoshka(loss, vectors)
        return {self.loss_name: LossSum(total, self.count_losses(targets)[self.loss_name])}

    def save_pretrained(self, directory: str | os.PathLike[str]) -> None:
        """Write the encoder and the settings as a ``SentenceTransformer`` directory."""
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
