"""Masked language modelling (Devlin et al. 2019): say what hidden tokens were."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from encoder_engine.models.heads import MaskedLM
from encoder_engine.objectives.objective import Exercise, LossSum

if TYPE_CHECKING:
    from collections.abc import Mapping

    from torch import Tensor, nn

    from encoder_engine.models import Encoder, EncoderOutput
    from encoder_engine.objectives.masking import Masking

__all__ = ["MLM"]


@dataclass(frozen=True, kw_only=True)
class MLM:
    """Minus the mean log probability of the hidden tokens; no other row reaches the vocabulary.

    Adds the targets ``rows`` and ``labels`` [M], and ``spans`` [S, 2] where spans are hidden.
    """

    masking: Masking
    weight: float = 1.0
    label_smoothing: float = 0.0
    name: str = "mlm"
    needs_pooled: bool = False
    row_targets: tuple[str, ...] | None = ("rows",)

    def corrupt(self, exercise: Exercise, seed: int, /) -> Exercise:
        """Hide tokens."""
        masked = self.masking(exercise.clean, seed)
        found = {"rows": masked.rows, "labels": masked.labels}
        if masked.spans is not None:
            found["spans"] = masked.spans
        targets = {**exercise.targets, **found}
        return replace(exercise, input_ids=masked.input_ids, targets=targets)

    def head(self, encoder: Encoder) -> MaskedLM:
        """Make the family's own head."""
        return MaskedLM(encoder)

    def count(self, targets: Mapping[str, Tensor]) -> int:
        """Count the hidden tokens."""
        return targets["rows"].shape[0]

    def loss(
        self, head: nn.Module, output: EncoderOutput, targets: Mapping[str, Tensor]
    ) -> LossSum:
        """Sum the cross-entropy over the hidden tokens."""
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
