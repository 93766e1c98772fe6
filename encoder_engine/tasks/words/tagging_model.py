"""The model of token classification: a head on hidden states of words, and an optional CRF.

Dimensions: M tokens that the head reads, K tags.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
import torch.nn.functional as F  # noqa: N812

from encoder_engine.families.checkpoints.files import CRF_FILE
from encoder_engine.models.crf import CRF
from encoder_engine.models.heads import TokenClassification
from encoder_engine.models.training_model import LossSum
from encoder_engine.packing import Sequences
from encoder_engine.tasks.items import FEATURES
from encoder_engine.tasks.models.extra_weights import load_extra, save_with_extra
from encoder_engine.tasks.models.heads import new_head_model
from encoder_engine.tasks.models.sequence_model import full_precision
from encoder_engine.tasks.models.task_model import TaskModel

if TYPE_CHECKING:
    import os
    from collections.abc import Sequence

    import numpy.typing as npt
    from torch import Tensor

    from encoder_engine.models import Encoder
    from encoder_engine.models.training_model import Inputs
    from encoder_engine.packing.tag_paths import LegalTags
    from encoder_engine.tasks.items import SavedModel

__all__ = ["TaggingModel"]


class TaggingModel(TaskModel):
    """Computes logits of the tokens that the head reads; the loss is cross-entropy, or a CRF's.

    The targets are ``tags`` int64 [M], and for a CRF ``runs`` int32 [R + 1]: offsets of runs of
    words, and ``begins`` and ``ends`` bool [R]: whether a run holds the first, and the last, word
    of its sentence.
    """

    def __init__(
        self,
        model: TokenClassification,
        crf: CRF | None,
        *,
        weights: Sequence[float] = (),
        label_smoothing: float = 0.0,
    ) -> None:
        super().__init__()
        self.encoder, self.model, self.crf = model.encoder, model, crf
        self._loss_name = "cross_entropy" if crf is None else "crf"
        self.weights = {self._loss_name: 1.0}
        self._class_weights, self._smoothing = tuple(weights), label_smoothing
        if crf is not None:
            # A CRF's sums are float32 or wider.
            dtype = torch.promote_types(model.encoder.dtype, torch.float32)
            crf.to(device=model.encoder.device, dtype=dtype)
        self.train(model.training)

    @classmethod
    def new(
        cls, encoder: Encoder, labels: Sequence[str], legal: LegalTags | None, **options: Any
    ) -> Any:
        """Make the model from an encoder; ``legal``: the legal tags of a CRF; None: no CRF."""
        crf = None if legal is None else CRF(len(labels), legal)
        return cls(new_head_model(TokenClassification, encoder, labels), crf, **options)

    @classmethod
    def load(
        cls, saved: SavedModel, labels: Sequence[str], legal: LegalTags | None, **options: Any
    ) -> Any:
        """Load a model directory that :meth:`save_pretrained` wrote; ``legal``: see :meth:`new`."""
        crf = None if legal is None else CRF(len(labels), legal)
        model = TokenClassification.from_pretrained(*saved)
        # Before the weights are read: the model gives the CRF its dtype.
        found = cls(model, crf, **options)
        if crf is not None:
            load_extra(crf, Path(saved.directory) / CRF_FILE)
        return found

    def counts(self, inputs: Inputs) -> dict[str, int]:
        """Return the number of tokens that have a tag."""
        return {self._loss_name: inputs.targets["tags"].shape[0]}

    def features(self, inputs: Inputs) -> Tensor:
        """Compute the hidden states of the tokens that the head reads, [M, D]."""
        hidden_MD: Tensor = self.encoder(
            inputs.batch, output_pooled=False, rows=inputs.rows
        ).last_hidden_state
        return hidden_MD

    def _logits(self, inputs: Inputs) -> Tensor:
        rows_MD = inputs.targets.get(FEATURES)
        if rows_MD is None:
            rows_MD = self.features(inputs)
        return full_precision(self.model.head(rows_MD))

    def forward(self, inputs: Inputs) -> dict[str, LossSum]:
        """Return the loss, summed over the tagged tokens."""
        logits_MK, tags_M = self._logits(inputs), inputs.targets["tags"]
        if self.crf is None:
            weight = (
                torch.tensor(self._class_weights).to(logits_MK) if self._class_weights else None
            )
            total = F.cross_entropy(
                logits_MK,
                tags_M,
                weight=weight,
                reduction="sum",
                label_smoothing=self._smoothing,
            )
        else:
            total = self.crf.negative_log_likelihood(
                logits_MK,
                Sequences(inputs.targets["runs"]),
                tags_M,
                begins=inputs.targets["begins"],
                ends=inputs.targets["ends"],
            )
        return {self._loss_name: LossSum(total, len(tags_M))}

    @torch.no_grad()
    def outputs(self, inputs: Inputs) -> dict[str, npt.NDArray[Any]]:
        """Compute ``logits`` [M, K] and, of a CRF, ``start``, ``end`` and ``transitions``."""
        found = {"logits": self._logits(inputs).cpu().numpy()}
        if self.crf is not None:
            names = ("start", "end", "transitions")
            for name, scores in zip(names, self.crf.scores(), strict=True):
                found[name] = scores.cpu().numpy()
        return found

    def save_pretrained(self, directory: str | os.PathLike[str]) -> None:
        """Write encoder and head in transformers' layout, and the CRF in a file beside them."""
        extra = {} if self.crf is None else {CRF_FILE: self.crf}
        save_with_extra(self.model, extra, directory)
