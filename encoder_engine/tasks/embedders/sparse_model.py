"""The model of the sparse task: a masked language model, SPLADE's pooling, and its losses."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from encoder_engine.embedding.saving.other_directories import write_splade_settings
from encoder_engine.errors import ConfigError, TensorNamesError
from encoder_engine.models.encoder import Encoder
from encoder_engine.models.heads import MaskedLM
from encoder_engine.models.training_model import Inputs, LossSum
from encoder_engine.objectives.vectors.in_batch import in_batch_negatives
from encoder_engine.objectives.vectors.sparse import flops, splade_vectors
from encoder_engine.opening.recipe import Settings, encoder_directory
from encoder_engine.tasks.embedders.layout import StepLayout
from encoder_engine.tasks.embedders.losses import list_loss, text_ids_of
from encoder_engine.tasks.embedders.step_model import StepModel
from encoder_engine.tasks.items import FEATURES

if TYPE_CHECKING:
    import os
    from collections.abc import Mapping
    from typing import Self

    from torch import Tensor

    from encoder_engine.tasks.embedders.settings import SparseSettings
    from encoder_engine.tasks.items import SavedModel

__all__ = ["SparseModel"]

QUERY_FLOPS, DOCUMENT_FLOPS = "query_flops", "document_flops"


class SparseModel(StepModel):
    """Computes texts' weights of the vocabulary's tokens, and the losses of a step's texts.

    The losses are the task's own and, unless their weights are 0, the FLOPS penalties of queries
    and of documents.
    """

    def __init__(self, encoder: Encoder, task: SparseSettings) -> None:
        super().__init__(encoder, task.loss)
        self.task = task
        self.model = MaskedLM(encoder)
        penalties = {QUERY_FLOPS: task.query_flops, DOCUMENT_FLOPS: task.document_flops}
        self.weights |= {n: w for n, w in penalties.items() if w > 0.0}
        self.train(encoder.training)

    @classmethod
    def load(cls, saved: SavedModel, task: SparseSettings) -> Self:
        """Load a model directory that :meth:`save_pretrained` wrote, in evaluation mode."""
        folder = encoder_directory(Path(saved.directory))
        trained = MaskedLM.from_pretrained(folder, *saved[1:])
        assert isinstance(trained.encoder, Encoder)
        model = cls(trained.encoder, task)
        model.model = trained
        return model.eval()

    def begin_with(self, checkpoint: str | os.PathLike[str]) -> None:
        """Load a checkpoint's head for masked tokens; raises :class:`ConfigError` without one."""
        try:
            trained = MaskedLM.from_pretrained(encoder_directory(Path(checkpoint)), "cpu")
        except TensorNamesError as error:
            raise ConfigError(
                f"{checkpoint} has no head for masked tokens, which the weights of sparse vectors "
                "are computed by; begin with a masked language model"
            ) from error
        self.model.head.load_state_dict(trained.head.state_dict())

    def count_losses(self, targets: Mapping[str, Tensor]) -> dict[str, int]:
        """Return the number of terms of each loss; a FLOPS penalty has one per text."""
        positives, negatives = targets["num_positives"], targets["num_negatives"]
        found = super().count_losses(targets) | {
            QUERY_FLOPS: len(positives),
            DOCUMENT_FLOPS: int(positives.sum() + negatives.sum()),
        }
        return {name: found[name] for name in self.weights}

    def features(self, inputs: Inputs) -> Tensor:
        """Compute the hidden states of all tokens, [T, D], which can be cached."""
        hidden_TD: Tensor = self.model.encode(inputs.batch).last_hidden_state
        return hidden_TD

    def vectors(self, inputs: Inputs) -> Tensor:
        """Return each text's weights of the vocabulary's tokens, [S, V]."""
        rows_TD = inputs.targets.get(FEATURES)
        logits = self.model(inputs.batch) if rows_TD is None else self.model.logits_of(rows_TD)
        return splade_vectors(logits, inputs.batch.sequences)

    def losses(
        self, vectors: Tensor, targets: Mapping[str, Tensor], share: tuple[int, int] = (0, 1)
    ) -> dict[str, LossSum]:
        """Return the losses of all texts of a step by name, each summed over its terms.

        ``share``: (rank, number of ranks): the part of the loss that this process computes; rank 0
        alone computes the FLOPS penalties.
        """
        layout = StepLayout.of(targets)
        totals = {self.loss_name: self._loss(vectors, targets, layout, share)}
        for name, places in ((QUERY_FLOPS, layout.queries_I), (DOCUMENT_FLOPS, layout.documents)):
            # The penalties take no time worth sharing: the first rank computes them.
            counted = name in self.weights and share[0] == 0 and len(places)
            totals[name] = flops(vectors[places]) if counted else vectors.new_zeros(())
        counts = self.count_losses(targets)
        return {name: LossSum(totals[name], counts[name]) for name in self.weights}

    def _loss(
        self,
        vectors_SV: Tensor,
        targets: Mapping[str, Tensor],
        layout: StepLayout,
        share: tuple[int, int],
    ) -> Tensor:
        if self.loss_name == "in_batch":
            return in_batch_negatives(
                vectors_SV[layout.queries_B],
                vectors_SV[layout.documents],
                owners_C=layout.owners,
                scale=self.task.scale,
                normalized=False,
                ids=text_ids_of(targets, layout),
                share=share,
            )
        if share[0] != 0:
            return vectors_SV.new_zeros(())
        places_C, lists_C = layout.by_item()
        scores_C = (vectors_SV[layout.queries_I[lists_C]] * vectors_SV[places_C]).sum(1)
        return list_loss(
            *(self.loss_name, scores_C, targets, layout), temperature=self.task.temperature
        )

    def save_pretrained(self, directory: str | os.PathLike[str]) -> None:
        """Write the masked language model and the settings as a ``SparseEncoder`` directory."""
        folder, task = Path(directory), self.task
        self.model.save_pretrained(folder)
        write_splade_settings(
            *(folder, self.encoder.spec),
            settings=Settings(prompts=dict(task.prompts)),
            max_seq_length=task.max_seq_length,
        )
