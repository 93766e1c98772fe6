"""Encoders with a head for a task: the public classes, in transformers' checkpoint layout.

Dimensions: T packed tokens, B sequences, M selected rows, D width, E width of the token
embeddings, V vocabulary, C labels.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple, Self

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor

from encoder_engine import ops
from encoder_engine.families.heads import find_layout
from encoder_engine.models.checkpoints.loading import load_head_model
from encoder_engine.models.checkpoints.saving import save_head_model
from encoder_engine.models.encoder import Encoder
from encoder_engine.models.head_network import HeadNetwork, VocabularyBias

if TYPE_CHECKING:
    import os

    from encoder_engine.packing import PackedBatch, SelectedRows

__all__ = [
    "HeadModel",
    "MaskedLM",
    "MultipleChoice",
    "NextSentence",
    "QuestionAnswering",
    "ReplacedTokens",
    "SequenceClassification",
    "Spans",
    "TokenClassification",
    "find_layout",
]


class HeadModel(HeadNetwork):
    """An encoder and a head: :meth:`from_pretrained` loads both, the constructor draws the head.

    ``num_labels``: for tasks with labels; by default the number in the encoder's configuration.
    Raises :class:`UnsupportedFeatureError` where the family has no head for the task.
    """

    encoder: Encoder

    @classmethod
    def from_pretrained(
        cls,
        path_or_hub_id: str | os.PathLike[str],
        device: str | torch.device = "auto",
        dtype: str | torch.dtype = "auto",
    ) -> Self:
        """Load a checkpoint with a head for this task.

        Tensors of other heads are not loaded, with an :class:`UnusedWeightsWarning`. Raises
        :class:`TensorNamesError` where a tensor of this head is missing. Options and other
        exceptions: see :meth:`Encoder.from_pretrained`.
        """
        return load_head_model(cls, Encoder, path_or_hub_id, device=device, dtype=dtype)

    def save_pretrained(self, directory: str | os.PathLike[str]) -> None:
        """Write config.json, model.safetensors and SHA256SUMS, in the layout of transformers."""
        save_head_model(self, directory)


class MaskedLM(HeadModel):
    """Predicts masked tokens: returns the logits of selected rows, or their loss."""

    task = "masked-lm"

    def forward(self, batch: PackedBatch, rows_M: Tensor | None = None) -> Tensor:
        """Return logits [M, V] of the rows ``rows_M``, int64 [M]; None: of all rows, [T, V]."""
        hidden_TD = self.encode(batch).last_hidden_state
        hidden_MD = hidden_TD if rows_M is None else F.embedding(rows_M, hidden_TD)
        return self.logits_of(hidden_MD)

    def logits_of(self, hidden_MD: Tensor) -> Tensor:
        """Return logits [M, V] from rows of an encoder's output, [M, D]."""
        weight_VE, bias_V = self._vocabulary
        return ops.linear(self.head.transform(hidden_MD), weight_VE, bias_V)

    def loss(
        self, batch: PackedBatch, rows_M: Tensor, labels_M: Tensor, *, label_smoothing: float = 0.0
    ) -> Tensor:
        """Return the mean cross-entropy of ``rows_M``; see :func:`ops.masked_cross_entropy`.

        Logits are computed for these rows only. ``labels_M``: int64 [M]; -100 is ignored.
        """
        hidden_TD = self.encode(batch).last_hidden_state
        return self.loss_of(hidden_TD, rows_M, labels_M, label_smoothing=label_smoothing)

    def loss_of(
        self,
        hidden_TD: Tensor,
        rows_M: Tensor,
        labels_M: Tensor,
        *,
        reduction: ops.Reduction = "mean",
        label_smoothing: float = 0.0,
    ) -> Tensor:
        """Return the loss from rows of an encoder's output, [T, D]; see :meth:`loss`."""
        options = {"reduction": reduction, "label_smoothing": label_smoothing}
        loss: Tensor = self._cross_entropy(hidden_TD, rows_M, labels_M, **options)
        return loss

    def predictions_of(
        self, hidden_TD: Tensor, rows_M: Tensor, labels_M: Tensor
    ) -> ops.MaskedTokenLoss:
        """Return the summed loss and the argmax tokens of rows of an encoder's output."""
        options = {"reduction": "sum", "return_predictions": True}
        found: ops.MaskedTokenLoss = self._cross_entropy(hidden_TD, rows_M, labels_M, **options)
        return found

    def _cross_entropy(
        self, hidden_TD: Tensor, rows_M: Tensor, labels_M: Tensor, **options: Any
    ) -> Any:
        hidden_ME = self.head.transform(F.embedding(rows_M, hidden_TD))
        rows = torch.arange(rows_M.shape[0], device=rows_M.device)
        return ops.masked_cross_entropy(hidden_ME, rows, labels_M, *self._vocabulary, **options)

    @property
    def _vocabulary(self) -> tuple[Tensor, Tensor]:
        assert isinstance(self.head.output, VocabularyBias)
        return self.encoder.embedding.tokens.weight, self.head.output.bias


class _PlainModel(HeadModel):
    def forward(self, batch: PackedBatch, global_rows: SelectedRows | None = None) -> Tensor:
        """Return the head's logits.

        ``global_rows``: the tokens that attend beyond a window; None: those that the head needs.
        """
        return self.numbers(self.encode(batch, global_rows))


class NextSentence(_PlainModel):
    """An encoder with a next-sentence head: logits [B, 2], class 0 if the second segment follows.

    In BERT's negatives the second segment is of another text, in ALBERT's the two are exchanged.
    """

    task = "next-sentence"


class SequenceClassification(_PlainModel):
    """An encoder with a head that labels sequences: logits [B, C]; one label is a regression."""

    task = "sequence-classification"


class MultipleChoice(_PlainModel):
    """An encoder with a head that scores a question's choices, each a sequence: [B, 1]."""

    task = "multiple-choice"


class TokenClassification(_PlainModel):
    """An encoder with a head that labels tokens: logits [T, C]."""

    task = "token-classification"


class ReplacedTokens(HeadModel):
    """A model that detects replaced tokens (ELECTRA): logits [T], positive for replaced ones."""

    task = "replaced-tokens"

    def forward(self, batch: PackedBatch) -> Tensor:
        """Return each token's logit of having been replaced, [T]."""
        return self.numbers(self.encode(batch)).squeeze(1)


class Spans(NamedTuple):
    """The logits, [T], of each token as the first and as the last one of an answer."""

    start_T: Tensor
    end_T: Tensor


class QuestionAnswering(HeadModel):
    """An encoder with a head that finds the span of a text that answers a question."""

    task = "question-answering"

    def forward(self, batch: PackedBatch, global_rows: SelectedRows | None = None) -> Spans:
        """Return the logits of the answer's start and end.

        ``global_rows``: the tokens that attend beyond a window; None: those that the head needs.
        """
        return Spans(*self.numbers(self.encode(batch, global_rows)).unbind(1))
