"""Next sentence prediction (Devlin et al. 2019) and sentence order prediction (Lan et al. 2020)."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
import torch.nn.functional as F  # noqa: N812

from encoder_engine.errors import BatchError
from encoder_engine.models.heads import NextSentence
from encoder_engine.objectives.objective import Exercise, LossSum

if TYPE_CHECKING:
    from collections.abc import Mapping

    from torch import Tensor, nn

    from encoder_engine.models import Encoder, EncoderOutput

__all__ = ["NSP"]


@dataclass(frozen=True, kw_only=True)
class NSP:
    """Say of a pair of segments whether the second belongs where it stands: class 0, else class 1.

    Whether a segment from elsewhere (NSP) or the two in the wrong order (SOP) stand against the
    right pair is decided where pairs are made. Adds the target ``pair_labels`` [B].
    """

    weight: float = 1.0
    name: str = "nsp"
    needs_pooled: bool = True
    row_targets: tuple[str, ...] | None = ()

    def corrupt(self, exercise: Exercise, _seed: int, /) -> Exercise:
        """Name the labels; nothing is changed. Raises :class:`BatchError` without pairs."""
        positive = exercise.clean.positive
        if positive is None:
            raise BatchError(f"{self.name} needs pairs of segments; cut the corpus into pairs")
        labels = np.where(positive, 0, 1).astype(np.int64)
        return replace(exercise, targets={**exercise.targets, "pair_labels": labels})

    def head(self, encoder: Encoder) -> NextSentence:
        """Make the family's own head."""
        return NextSentence(encoder)

    def count(self, targets: Mapping[str, Tensor]) -> int:
        """Count the pairs."""
        return targets["pair_labels"].shape[0]

    def loss(
        self, head: nn.Module, output: EncoderOutput, targets: Mapping[str, Tensor]
    ) -> LossSum:
        """Sum the cross-entropy over the pairs."""
        assert isinstance(head, NextSentence)
        labels_B = targets["pair_labels"]
        logits_BC = head.numbers(output)
        logits_BC = logits_BC.float() if logits_BC.dtype.itemsize < 4 else logits_BC
        correct = None if head.training else (logits_BC.argmax(1) == labels_B).sum()
        total = F.cross_entropy(logits_BC, labels_B, reduction="sum")
        return LossSum(total, self.count(targets), correct)
