"""The model of extractive question answering.

Dimensions: T packed tokens, B windows.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from encoder_engine.models.heads import QuestionAnswering, Spans
from encoder_engine.models.training_model import LossSum
from encoder_engine.tasks.items import FEATURES
from encoder_engine.tasks.models.heads import new_head_model
from encoder_engine.tasks.models.sequence_model import full_precision
from encoder_engine.tasks.models.task_model import TaskModel

if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Self

    import numpy.typing as npt
    from torch import Tensor

    from encoder_engine.models import Encoder
    from encoder_engine.models.training_model import Inputs
    from encoder_engine.packing import Sequences
    from encoder_engine.tasks.items import SavedModel

__all__ = ["AnswerModel", "window_cross_entropy"]


class AnswerModel(TaskModel):
    """Computes logits of an answer's first and last token; the loss averages both cross-entropies.

    The targets are ``starts`` and ``ends``, int64 [B]: token indices within the window.
    """

    def __init__(self, model: QuestionAnswering) -> None:
        super().__init__()
        self.encoder, self.model = model.encoder, model
        self.weights = {"cross_entropy": 1.0}
        self.train(model.training)

    @classmethod
    def new(cls, encoder: Encoder, labels: Sequence[str]) -> Self:
        """Make the model from an encoder, with a random head."""
        encoder.pooler = None
        return cls(new_head_model(QuestionAnswering, encoder, labels))

    @classmethod
    def load(cls, saved: SavedModel) -> Self:
        """Load a model directory that :meth:`save_pretrained` wrote."""
        return cls(QuestionAnswering.from_pretrained(*saved))

    def counts(self, inputs: Inputs) -> dict[str, int]:
        """Return the number of windows, by which the loss is averaged."""
        return {"cross_entropy": len(inputs.batch.sequences)}

    def features(self, inputs: Inputs) -> Tensor:
        """Compute the hidden states of all tokens, [T, D], which can be cached."""
        hidden_TD: Tensor = self.model.encode(inputs.batch).last_hidden_state
        return hidden_TD

    def _spans(self, inputs: Inputs) -> Spans:
        rows_TD = inputs.targets.get(FEATURES)
        if rows_TD is None:
            found: Spans = self.model(inputs.batch)
            return found
        return Spans(*self.model.head(rows_TD).unbind(1))

    def forward(self, inputs: Inputs) -> dict[str, LossSum]:
        """Return the loss, summed over the windows."""
        spans = self._spans(inputs)
        sequences = inputs.batch.sequences.to(spans.start_T.device)
        parts = [
            window_cross_entropy(full_precision(logits), sequences, inputs.targets[name])
            for name, logits in (("starts", spans.start_T), ("ends", spans.end_T))
        ]
        return {"cross_entropy": LossSum((parts[0] + parts[1]) / 2, len(sequences))}

    @torch.no_grad()
    def outputs(self, inputs: Inputs) -> dict[str, npt.NDArray[Any]]:
        """Compute the logits ``starts`` and ``ends`` of all tokens, [T] each."""
        spans = self._spans(inputs)
        return {
            "starts": full_precision(spans.start_T).cpu().numpy(),
            "ends": full_precision(spans.end_T).cpu().numpy(),
        }


def window_cross_entropy(logits_T: Tensor, sequences: Sequences, places_B: Tensor) -> Tensor:
    """Return the cross-entropy of one target token per window, summed; softmax over the window."""
    owners_T = sequences.sequence_ids
    highest_B = logits_T.new_full((len(sequences),), -torch.inf)
    highest_B = highest_B.scatter_reduce(0, owners_T, logits_T.detach(), "amax")
    shifted_T = logits_T - highest_B[owners_T]
    summed_B = logits_T.new_zeros(len(sequences)).index_add(0, owners_T, shifted_T.exp())
    gold_B = shifted_T[sequences.cu_seqlens[:-1].long() + places_B]
    return (summed_B.log() - gold_B).sum()
