"""Masked language modelling (Devlin et al. 2019): predict masked tokens."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from encoder_engine.dataclass import dataclass
from encoder_engine.models.heads import MaskedLM
from encoder_engine.models.training_model import IGNORED, LossSum, Padding

if TYPE_CHECKING:
    from collections.abc import Mapping

    from torch import Tensor, nn

    from encoder_engine.models import Encoder, EncoderOutput
    from encoder_engine.objectives.masking import Masking
    from encoder_engine.objectives.objective import CorruptedBatch

__all__ = ["MLM"]


@dataclass(frozen=True, kw_only=True)
class MLM:
    """The training objective masked language modelling: cross-entropy of the masked tokens.

    Only the hidden states of masked tokens are projected to the vocabulary. Adds the targets
    ``rows`` and ``labels`` [M], and ``spans`` [S, 2] for span masking.
    """

    masking: Masking
    weight: float = 1.0
    label_smoothing: float = 0.0
    name: str = "mlm"
    needs_pooled: bool = False
    row_targets: tuple[str, ...] | None = ("rows",)

    @property
    def paddings(self) -> Mapping[str, Padding] | None:
        """Return the padding of targets for CUDA graphs: rows by 0, labels by an ignored one."""
        return {"rows": Padding(0), "labels": Padding(IGNORED)}

    def corrupt(self, corrupted: CorruptedBatch, seed: int, /) -> CorruptedBatch:
        """Mask tokens of the model's input; add their indices and original ids as targets."""
        masked = self.masking(corrupted.clean, seed)
        found = {"rows": masked.rows, "labels": masked.labels}
        if masked.spans is not None:
            found["spans"] = masked.spans
        targets = {**corrupted.targets, **found}
        return replace(corrupted, input_ids=masked.input_ids, targets=targets)

    def head(self, encoder: Encoder) -> MaskedLM:
        """Make the masked-language-model head of the encoder's family."""
        return MaskedLM(encoder)

    def count(self, targets: Mapping[str, Tensor]) -> int:
        """Return the number of masked tokens."""
        return targets["rows"].shape[0]

    def loss(
        self, head: nn.Module, output: EncoderOutput, targets: Mapping[str, Tensor]
    ) -> LossSum:
        """Return the cross-entropy summed over the masked tokens."""
        assert isinstance(head, MaskedLM)
        hidden_TD, rows_M, labels_M = output.last_hidden_state, targets["rows"], targets["labels"]
        if not head.training:
            found = head.predictions_of(hidden_TD, rows_M, labels_M)
            correct = (found.predictions_M == labels_M).sum()
            return LossSum(found.loss, self.count(targets), correct)
        total = head.loss_of(
            *(hidden_TD, rows_M, labels_M), reduction="sum", label_smoothing=self.label_smoothing
        )
        return LossSum(total, self.count(targets))
