"""Next sentence prediction (Devlin et al. 2019) and sentence order prediction (Lan et al. 2020)."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import torch.nn.functional as F  # noqa: N812

from encoder_engine.dataclass import dataclass
from encoder_engine.errors import BatchError
from encoder_engine.models.heads import NextSentence
from encoder_engine.models.training_model import IGNORED, LossSum, Padding

if TYPE_CHECKING:
    from collections.abc import Mapping

    from torch import Tensor, nn

    from encoder_engine.models import Encoder, EncoderOutput
    from encoder_engine.objectives.objective import CorruptedBatch

__all__ = ["NSP"]


@dataclass(frozen=True, kw_only=True)
class NSP:
    """Classification of segment pairs: class 0 for consecutive segments, class 1 for negatives.

    The data make the negatives: a segment from elsewhere (NSP), or exchanged segments (SOP).
    Adds the target ``pair_labels`` [B].
    """

    weight: float = 1.0
    name: str = "nsp"
    needs_pooled: bool = True
    row_targets: tuple[str, ...] | None = ()

    @property
    def paddings(self) -> Mapping[str, Padding] | None:
        """Return how ``pair_labels`` are padded for CUDA graphs: by a label that is ignored."""
        return {"pair_labels": Padding(IGNORED, by_sequence=True)}

    def corrupt(self, corrupted: CorruptedBatch, _seed: int, /) -> CorruptedBatch:
        """Add the pairs' classes as a target. Raises :class:`BatchError` for data without pairs."""
        positive = corrupted.clean.positive
        if positive is None:
            raise BatchError(f"{self.name} needs pairs of segments; cut the corpus into pairs")
        labels = np.where(positive, 0, 1).astype(np.int64)
        return replace(corrupted, targets={**corrupted.targets, "pair_labels": labels})

    def head(self, encoder: Encoder) -> NextSentence:
        """Make the next-sentence head of the encoder's family."""
        return NextSentence(encoder)

    def count(self, targets: Mapping[str, Tensor]) -> int:
        """Return the number of segment pairs."""
        return targets["pair_labels"].shape[0]

    def loss(
        self, head: nn.Module, output: EncoderOutput, targets: Mapping[str, Tensor]
    ) -> LossSum:
        """Return the cross-entropy summed over the segment pairs."""
        assert isinstance(head, NextSentence)
        labels_B = targets["pair_labels"]
        logits_BC = head.numbers(output)
        logits_BC = logits_BC.float() if logits_BC.dtype.itemsize < 4 else logits_BC
        correct = None if head.training else (logits_BC.argmax(1) == labels_B).sum()
        total = F.cross_entropy(logits_BC, labels_B, reduction="sum")
        return LossSum(total, self.count(targets), correct)
