"""The model that scores lists of texts: choices of a question, or documents of a query.

Dimensions: B lists of N texts in all.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from encoder_engine.models.heads import MultipleChoice, SequenceClassification
from encoder_engine.models.training_model import LossSum
from encoder_engine.objectives.vectors.lists import binary_error, list_log_softmax, listwise
from encoder_engine.tasks.items import LABELS, SIZES
from encoder_engine.tasks.models.heads import new_head_model
from encoder_engine.tasks.models.sequence_model import sequence_features, sequence_logits
from encoder_engine.tasks.models.task_model import TaskModel

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Self

    import numpy.typing as npt
    from torch import Tensor

    from encoder_engine.models import Encoder
    from encoder_engine.models.training_model import Inputs
    from encoder_engine.tasks.items import SavedModel

    # (scores [N], labels [N], list of each text [N], B) to the summed loss and its terms.
    ListLoss = Callable[[Tensor, Tensor, Tensor, int], LossSum]

__all__ = ["ListModel"]


class ListModel(TaskModel):
    """Gives each text one score by a head, and computes a loss of lists of scores.

    ``loss_name``: ``"cross_entropy"`` of a multiple choice's right endings; ``"binary"`` or
    ``"listwise"`` of documents.
    """

    def __init__(self, model: MultipleChoice | SequenceClassification, loss_name: str) -> None:
        super().__init__()
        self.encoder, self.model = model.encoder, model
        self.weights = {loss_name: 1.0}
        self._loss_name, self._loss = loss_name, _LOSSES[loss_name]
        self.train(model.training)

    @classmethod
    def new(cls, encoder: Encoder, loss_name: str) -> Self:
        """Make the model from an encoder, with a random head."""
        return cls(new_head_model(_head(loss_name), encoder, ("score",)), loss_name)

    @classmethod
    def load(cls, saved: SavedModel, loss_name: str) -> Self:
        """Load a model directory that :meth:`save_pretrained` wrote."""
        return cls(_head(loss_name).from_pretrained(*saved), loss_name)

    def counts(self, inputs: Inputs) -> dict[str, int]:
        """Return the number of terms of the loss: texts for a binary loss, else lists."""
        of_texts = self._loss_name == "binary"
        return {self._loss_name: len(inputs.targets[LABELS if of_texts else SIZES])}

    def features(self, inputs: Inputs) -> Tensor | None:
        """Compute each text's vector that the head reads, [N, D]; None: it reads all tokens."""
        return sequence_features(self.model, inputs)

    def _scores(self, inputs: Inputs) -> Tensor:
        return sequence_logits(self.model, inputs).squeeze(1)

    def forward(self, inputs: Inputs) -> dict[str, LossSum]:
        """Return the loss, summed over the texts or lists of a batch."""
        scores_N, sizes_B = self._scores(inputs), inputs.targets[SIZES]
        lists_N = torch.arange(len(sizes_B), device=sizes_B.device).repeat_interleave(sizes_B)
        labels_N = inputs.targets[LABELS].to(scores_N.dtype)
        return {self._loss_name: self._loss(scores_N, labels_N, lists_N, len(sizes_B))}

    @torch.no_grad()
    def outputs(self, inputs: Inputs) -> dict[str, npt.NDArray[Any]]:
        """Compute ``scores``, one per text, float32 or float64 [N]."""
        return {"scores": self._scores(inputs).cpu().numpy()}


def _head(loss_name: str) -> type[MultipleChoice] | type[SequenceClassification]:
    return MultipleChoice if loss_name == "cross_entropy" else SequenceClassification


def _cross_entropy(scores_N: Tensor, labels_N: Tensor, lists_N: Tensor, num_lists: int) -> LossSum:
    logs_N = list_log_softmax(scores_N, lists_N, num_lists)
    return LossSum(-(labels_N * logs_N).sum(), num_lists)


def _listwise(scores_N: Tensor, labels_N: Tensor, lists_N: Tensor, num_lists: int) -> LossSum:
    return LossSum(listwise(scores_N, labels_N, lists_N, num_lists), num_lists)


def _binary(scores_N: Tensor, labels_N: Tensor, lists_N: Tensor, num_lists: int) -> LossSum:
    del lists_N, num_lists
    return LossSum(binary_error(scores_N, labels_N), len(scores_N))


_LOSSES: dict[str, ListLoss] = {
    "binary": _binary,
    "cross_entropy": _cross_entropy,
    "listwise": _listwise,
}
