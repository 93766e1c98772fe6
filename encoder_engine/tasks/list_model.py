"""The model that scores lists of texts: choices of a question, or documents of a query.

Dimensions: B lists of N texts in all.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from encoder_engine.models.training_model import Inputs, LossSum
from encoder_engine.packing.token_rows import TokenRows
from encoder_engine.tasks.batching import feature_targets, packed_batch
from encoder_engine.tasks.items import Items, Ragged
from encoder_engine.tasks.sequence_task import sequence_features, sequence_logits
from encoder_engine.tasks.task import TaskModel

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Sequence

    import numpy.typing as npt
    from torch import Tensor

    from encoder_engine.models import Encoder
    from encoder_engine.models.heads import MultipleChoice, SequenceClassification
    from encoder_engine.tasks.task import Windows
    from encoder_engine.text import Tokenizer

    # (scores [N], labels [N], list of each text [N], B) to the summed loss and its terms.
    ListLoss = Callable[[Tensor, Tensor, Tensor, int], LossSum]

__all__ = ["ListModel", "collate_lists", "encode_lists", "split_lists"]

LABELS, SIZES = "labels", "sizes"


def encode_lists(
    tokenizer: Tokenizer,
    windows: Windows,
    pairs: Sequence[Sequence[tuple[str, str]]],
    labels: Sequence[Sequence[float]] | None,
) -> Items:
    """Tokenize lists of text pairs; pairs beyond the limit are truncated, and their lists counted.

    ``labels``: one for each pair; None: unlabelled.
    """
    flat = [pair for one in pairs for pair in one]
    encoding = tokenizer.encode_batch(
        [one for one, _ in flat],
        [two for _, two in flat],
        max_length=windows.max_length,
        truncation="longest_first",
    )
    offsets = np.cumsum([0, *(len(one) for one in pairs)]).astype(np.int64)
    columns: dict[str, npt.NDArray[Any] | Ragged] = {}
    if labels is not None:
        values = np.array([label for one in labels for label in one], np.float64)
        columns[LABELS] = Ragged(values, offsets)
    owners = np.repeat(np.arange(len(pairs)), np.diff(offsets))
    return Items(
        rows=TokenRows.of(encoding),
        offsets=offsets,
        examples=np.arange(len(pairs)),
        columns=columns,
        num_truncated=len(set(owners[np.asarray(encoding.truncated)].tolist())),
    )


def collate_lists(items: Items) -> Inputs:
    """Make the input of a batch of lists."""
    targets = {SIZES: torch.from_numpy(np.diff(items.offsets)), **feature_targets(items)}
    if LABELS in items.columns:
        targets[LABELS] = torch.from_numpy(items.ragged(LABELS).values)
    return Inputs(packed_batch(items.rows), targets)


def split_lists(scores: npt.NDArray[Any], items: Items) -> list[npt.NDArray[np.float64]]:
    """Cut the scores [N] of a batch into those of each list."""
    return np.split(scores.astype(np.float64), items.offsets[1:-1])


class ListModel(TaskModel):
    """A head that gives each text one score, and a loss over lists of scores."""

    def __init__(
        self, model: MultipleChoice | SequenceClassification, loss_name: str, loss: ListLoss
    ) -> None:
        super().__init__()
        self.encoder, self.model = model.encoder, model
        self.weights = {loss_name: 1.0}
        self._loss_name, self._loss = loss_name, loss
        self.train(model.training)

    @property
    def encoders(self) -> tuple[Encoder, ...]:
        """The encoder."""
        return (self.encoder,)

    def counts(self, inputs: Inputs) -> dict[str, int]:
        """Return the number of terms: texts for a binary loss, else lists."""
        of_texts = self._loss_name == "binary"
        return {self._loss_name: len(inputs.targets[LABELS if of_texts else SIZES])}

    def features(self, inputs: Inputs) -> Tensor:
        """Compute the vector of each text that the pooler or the head reads, [N, D]."""
        return sequence_features(self.model, inputs)

    def _scores(self, inputs: Inputs) -> Tensor:
        return sequence_logits(self.model, inputs).squeeze(1)

    def forward(self, inputs: Inputs) -> dict[str, LossSum]:
        """Return the summed loss."""
        scores_N, sizes_B = self._scores(inputs), inputs.targets[SIZES]
        lists_N = torch.arange(len(sizes_B), device=sizes_B.device).repeat_interleave(sizes_B)
        labels_N = inputs.targets[LABELS].to(scores_N.dtype)
        return {self._loss_name: self._loss(scores_N, labels_N, lists_N, len(sizes_B))}

    @torch.no_grad()
    def outputs(self, inputs: Inputs) -> dict[str, npt.NDArray[Any]]:
        """Compute ``scores``, float32 or float64 [N]."""
        return {"scores": self._scores(inputs).cpu().numpy()}

    def save_pretrained(self, directory: str | os.PathLike[str]) -> None:
        """Write encoder and head in transformers' layout."""
        self.model.save_pretrained(directory)
