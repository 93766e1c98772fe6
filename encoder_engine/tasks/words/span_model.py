"""The model of span classification: a span head on the hidden states of first subwords.

Dimensions: S spans, C outputs: NULL and the types.
"""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
import torch.nn.functional as F  # noqa: N812

from encoder_engine.errors import MissingPoolerWarning
from encoder_engine.families.checkpoints.files import SPAN_HEAD_FILE
from encoder_engine.models.encoder import Encoder
from encoder_engine.models.span_head import SpanHead
from encoder_engine.models.training_model import LossSum
from encoder_engine.tasks.items import FEATURES
from encoder_engine.tasks.models.extra_weights import load_extra, save_with_extra
from encoder_engine.tasks.models.sequence_model import full_precision
from encoder_engine.tasks.models.task_model import TaskModel
from encoder_engine.tasks.words.span_selection import NOT_HERE

if TYPE_CHECKING:
    import os
    from typing import Self

    import numpy.typing as npt
    from torch import Tensor

    from encoder_engine.models.training_model import Inputs
    from encoder_engine.tasks.items import SavedModel

__all__ = ["SpanModel"]


class SpanModel(TaskModel):
    """Computes logits of all spans of words; the loss: summed cross-entropy / number of words.

    The target is ``classes`` int64 [S], in the order of the head's spans; -1 for spans that another
    window scores.
    """

    def __init__(self, encoder: Encoder, head: SpanHead) -> None:
        super().__init__()
        self.encoder, self.head = encoder, head.to(device=encoder.device, dtype=encoder.dtype)
        # No loss would train a pooler.
        encoder.pooler = None
        self.weights = {"cross_entropy": 1.0}
        self.train(encoder.training)

    @classmethod
    def new(cls, encoder: Encoder, num_outputs: int, **settings: Any) -> Self:
        """Make a model with a random head; ``settings``: keywords of :class:`SpanHead`."""
        return cls(encoder, SpanHead(encoder.spec.width, num_outputs, **settings))

    @classmethod
    def load(cls, saved: SavedModel, num_outputs: int, **settings: Any) -> Self:
        """Load what :meth:`save_pretrained` wrote; ``settings``: see :meth:`new`."""
        with warnings.catch_warnings():
            # A span head reads no pooler.
            warnings.simplefilter("ignore", MissingPoolerWarning)
            encoder = Encoder.from_pretrained(*saved)
        # Before the weights are read: the model gives the head its dtype.
        model = cls.new(encoder, num_outputs, **settings)
        load_extra(model.head, Path(saved.directory) / SPAN_HEAD_FILE)
        return model

    def counts(self, inputs: Inputs) -> dict[str, int]:
        """Return the number of words, by which the loss is divided."""
        assert inputs.rows is not None
        # Spans of one word come first, and each is scored in one window alone.
        singles = inputs.targets["classes"][: len(inputs.rows)]
        return {"cross_entropy": int((singles != NOT_HERE).sum())}

    def features(self, inputs: Inputs) -> Tensor:
        """Compute the hidden states of the first subwords of a batch's M words, [M, D]."""
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
        """Return the cross-entropy summed over the spans of a batch."""
        total = F.cross_entropy(
            self._logits(inputs),
            inputs.targets["classes"],
            ignore_index=NOT_HERE,
            reduction="sum",
        )
        return {"cross_entropy": LossSum(total, self.counts(inputs)["cross_entropy"])}

    @torch.no_grad()
    def outputs(self, inputs: Inputs) -> dict[str, npt.NDArray[Any]]:
        """Compute the class probabilities of spans, ``probabilities`` [S, C]."""
        return {"probabilities": self._logits(inputs).softmax(1).cpu().numpy()}

    def save_pretrained(self, directory: str | os.PathLike[str]) -> None:
        """Write the encoder in transformers' layout, and the head in a file beside it."""
        save_with_extra(self.encoder, {SPAN_HEAD_FILE: self.head}, directory)
