"""The model of span classification: an encoder with a span head on first-subword rows.

Dimensions: S spans, C outputs: NULL and the types.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
import torch.nn.functional as F  # noqa: N812

from encoder_engine.models.training_model import LossSum
from encoder_engine.tasks.batching import FEATURES
from encoder_engine.tasks.extra_weights import load_extra, save_with_extra
from encoder_engine.tasks.sequence_task import full_precision
from encoder_engine.tasks.task import TaskModel

if TYPE_CHECKING:
    import os

    import numpy.typing as npt
    from torch import Tensor

    from encoder_engine.models import Encoder
    from encoder_engine.models.span_head import SpanHead
    from encoder_engine.models.training_model import Inputs

__all__ = ["SpanModel"]

HEAD_FILE = "span_head.safetensors"
# The class of spans that another window answers for.
NOT_HERE = -1


class SpanModel(TaskModel):
    """Logits of all spans; the loss is the summed cross-entropy of spans, divided by words.

    The target is ``classes`` int64 [S], in the order of the head's spans, -1 for none.
    """

    def __init__(self, encoder: Encoder, head: SpanHead) -> None:
        super().__init__()
        self.encoder, self.head = encoder, head.to(device=encoder.device, dtype=encoder.dtype)
        # No loss would train it.
        encoder.pooler = None
        self.weights = {"cross_entropy": 1.0}
        self.train(encoder.training)

    @classmethod
    def load(cls, encoder: Encoder, head: SpanHead, directory: str | os.PathLike[str]) -> SpanModel:
        """Load what :meth:`save_pretrained` wrote beside the encoder."""
        # Made first: it gives the head its dtype.
        model = cls(encoder, head)
        load_extra(head, Path(directory) / HEAD_FILE)
        return model

    @property
    def encoders(self) -> tuple[Encoder, ...]:
        """The encoder."""
        return (self.encoder,)

    def counts(self, inputs: Inputs) -> dict[str, int]:
        """Return the number of words."""
        assert inputs.rows is not None
        # Spans of one word come first, and each word is one in one window.
        singles = inputs.targets["classes"][: len(inputs.rows)]
        return {"cross_entropy": int((singles != NOT_HERE).sum())}

    def features(self, inputs: Inputs) -> Tensor:
        """Compute the rows of words, [M, D]."""
        hidden_MD: Tensor = self.encoder(
            inputs.batch, output_pooled=False, rows=inputs.rows
        ).last_hidden_state
        return hidden_MD

    def _logits(self, inputs: Inputs) -> Tensor:
        assert inputs.rows is not None
        rows_MD = inputs.targets.get(FEATURES)
        if rows_MD is None:
            rows_MD = self.features(inputs)
        return full_precision(self.head(rows_MD, inputs.rows.within))

    def forward(self, inputs: Inputs) -> dict[str, LossSum]:
        """Return the summed cross-entropy of the spans."""
        total = F.cross_entropy(
            self._logits(inputs),
            inputs.targets["classes"],
            ignore_index=NOT_HERE,
            reduction="sum",
        )
        return {"cross_entropy": LossSum(total, self.counts(inputs)["cross_entropy"])}

    @torch.no_grad()
    def outputs(self, inputs: Inputs) -> dict[str, npt.NDArray[Any]]:
        """Compute ``probabilities`` [S, C]."""
        return {"probabilities": self._logits(inputs).softmax(1).cpu().numpy()}

    def save_pretrained(self, directory: str | os.PathLike[str]) -> None:
        """Write the encoder in transformers' layout, and the head beside it."""
        save_with_extra(self.encoder, {HEAD_FILE: self.head}, directory)
