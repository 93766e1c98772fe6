"""The model of tasks on whole texts, and the losses of its logits.

Dimensions: B sequences, C outputs.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
import torch.nn.functional as F  # noqa: N812

from encoder_engine import ops
from encoder_engine.families.facts.head_layout import ONE_ROW
from encoder_engine.models.heads import SequenceClassification
from encoder_engine.models.training_model import LossSum, Padding
from encoder_engine.packing import Sequences
from encoder_engine.tasks.items import FEATURES
from encoder_engine.tasks.models.heads import new_head_model
from encoder_engine.tasks.models.task_model import TaskModel

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from typing import Self

    import numpy.typing as npt
    from torch import Tensor

    from encoder_engine.models import Encoder
    from encoder_engine.models.heads import HeadModel
    from encoder_engine.models.training_model import Inputs
    from encoder_engine.tasks.items import SavedModel

    Loss = Callable[[Tensor, Tensor], Tensor]

__all__ = [
    "SequenceModel",
    "class_loss",
    "full_precision",
    "label_set_loss",
    "sequence_features",
    "sequence_logits",
]


class SequenceModel(TaskModel):
    """An encoder with a head that gives logits for whole texts, and the loss of the logits."""

    def __init__(self, model: SequenceClassification, loss_name: str, loss: Loss) -> None:
        super().__init__()
        self.encoder, self.model = model.encoder, model
        self.weights = {loss_name: 1.0}
        self._loss_name, self._loss = loss_name, loss
        self.train(model.training)

    @classmethod
    def new(
        cls, encoder: Encoder, labels: Sequence[str], problem_type: str, loss_name: str, loss: Loss
    ) -> Self:
        """Make the model from an encoder, with a random head."""
        model = new_head_model(SequenceClassification, encoder, labels)
        model.config["problem_type"] = problem_type
        return cls(model, loss_name, loss)

    @classmethod
    def load(cls, saved: SavedModel, loss_name: str, loss: Loss) -> Self:
        """Load a model directory that :meth:`save_pretrained` wrote."""
        return cls(SequenceClassification.from_pretrained(*saved), loss_name, loss)

    def counts(self, inputs: Inputs) -> dict[str, int]:
        """Return the number of sequences, over which the loss is averaged."""
        return {self._loss_name: len(inputs.batch.sequences)}

    def features(self, inputs: Inputs) -> Tensor | None:
        """Compute each sequence's vector for the head, [B, D]; None: it reads all tokens."""
        return sequence_features(self.model, inputs)

    def paddings(self, inputs: Inputs) -> Mapping[str, Padding] | None:
        """Return the padding for CUDA graphs: none is needed for the only target, ``target``.

        None: the batch has cached features, and is computed without graphs.
        """
        return None if FEATURES in inputs.targets else {"target": Padding()}

    def forward(self, inputs: Inputs) -> dict[str, LossSum]:
        """Return the loss, summed over the sequences of a batch."""
        target = inputs.targets["target"]
        # A CUDA graph of fixed sizes computes further sequences, which are not scored.
        logits = sequence_logits(self.model, inputs)[: len(target)]
        total = self._loss(logits, target)
        return {self._loss_name: LossSum(total, len(logits))}

    @torch.no_grad()
    def outputs(self, inputs: Inputs) -> dict[str, npt.NDArray[Any]]:
        """Compute ``logits`` of the sequences, float32 or float64 [B, C]."""
        return {"logits": sequence_logits(self.model, inputs).cpu().numpy()}


def sequence_features(model: HeadModel, inputs: Inputs) -> Tensor | None:
    """Compute the vector of each sequence that the pooler or the head reads, [B, D].

    None: the head reads all tokens, so there is no single vector.
    """
    if model.rows not in ONE_ROW:
        return None
    output = model.encode(inputs.batch)
    return ops.pooling(output.last_hidden_state, output.sequences, mode=ONE_ROW[model.rows])


def sequence_logits(model: HeadModel, inputs: Inputs) -> Tensor:
    """Compute the head's logits of each sequence [B, C], from cached features if there are any."""
    vectors_BD = inputs.targets.get(FEATURES)
    if vectors_BD is None:
        return full_precision(model(inputs.batch))
    if model.rows == "pooled":
        assert model.encoder.pooler is not None
        offsets = torch.arange(len(vectors_BD) + 1, dtype=torch.int32, device=vectors_BD.device)
        vectors_BD = model.encoder.pooler(vectors_BD, Sequences(offsets))
    return full_precision(model.head(vectors_BD))


def full_precision(logits: Tensor) -> Tensor:
    """Return 16-bit logits as float32, so that losses under autocast are float32."""
    return logits.float() if logits.element_size() < 4 else logits


def class_loss(
    logits_BC: Tensor, target: Tensor, *, weights: Sequence[float], label_smoothing: float
) -> Tensor:
    """Return the cross-entropy of logits summed over rows; ``weights``: by class; empty: all 1."""
    weight = torch.tensor(weights).to(logits_BC) if weights else None
    return F.cross_entropy(
        logits_BC, target, weight=weight, reduction="sum", label_smoothing=label_smoothing
    )


def label_set_loss(logits_BC: Tensor, target_BC: Tensor) -> Tensor:
    """Return the binary cross-entropy of logits, averaged over labels and summed over rows."""
    target_BC = target_BC.to(logits_BC.dtype)
    each = F.binary_cross_entropy_with_logits(logits_BC, target_BC, reduction="sum")
    return each / logits_BC.shape[1]
