"""Distillation (Sanh et al. 2019): trains a smaller encoder, the student, to imitate a teacher.

Dimensions: T tokens, M hidden tokens, V vocabulary, D width.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn

from encoder_engine.errors import ConfigError
from encoder_engine.models.heads import MaskedLM
from encoder_engine.models.training_model import Inputs, LossSum, TrainingModel

if TYPE_CHECKING:
    import os

    from encoder_engine.models import Encoder

__all__ = ["DistillationModel", "take_layers"]


class DistillationModel(TrainingModel):
    """A student encoder with the three losses by which it learns from its teacher.

    ``soft``: ``temperature^2 * KL(teacher || student)`` of the masked tokens' distributions at
    ``temperature``.
    ``mlm``: the cross-entropy of masked language modelling.
    ``cosine``: ``1 - cos`` of student's and teacher's last hidden states, over all tokens.
    The teacher gets the same input as the student, has no dropout, and is not trained. Raises
    :class:`ConfigError` for a teacher of another width.
    """

    def __init__(
        self,
        encoder: Encoder,
        teacher: MaskedLM,
        *,
        temperature: float = 2.0,
        soft_weight: float = 5.0,
        hard_weight: float = 2.0,
        cosine_weight: float = 1.0,
    ) -> None:
        super().__init__()
        if encoder.spec.width != teacher.encoder.spec.width:
            raise ConfigError(
                f"the student is {encoder.spec.width} wide, the teacher "
                f"{teacher.encoder.spec.width}: their hidden states cannot be compared"
            )
        encoder.pooler = None
        self.encoder, self.head = encoder, MaskedLM(encoder)
        # In a list, which nn.Module does not register: not trained, saved or counted.
        self._teacher = [teacher.eval().requires_grad_(False)]
        self.temperature = temperature
        self.weights = {"soft": soft_weight, "mlm": hard_weight, "cosine": cosine_weight}

    @property
    def teacher(self) -> MaskedLM:
        """The model that the student is distilled from."""
        return self._teacher[0]

    def _apply(self, fn: Any, recurse: bool = True) -> DistillationModel:
        self.teacher._apply(fn, recurse)  # type: ignore[no-untyped-call]
        super()._apply(fn, recurse)  # type: ignore[no-untyped-call]
        return self

    def counts(self, inputs: Inputs) -> dict[str, int]:
        """Return the number of terms of each loss: masked tokens, for ``cosine`` all tokens."""
        hidden = inputs.targets["rows"].shape[0]
        return {"soft": hidden, "mlm": hidden, "cosine": inputs.batch.num_tokens}

    def forward(self, inputs: Inputs) -> dict[str, LossSum]:
        """Return the losses ``soft``, ``mlm`` and ``cosine``, each summed over its terms."""
        counts, labels_M = self.counts(inputs), inputs.targets["labels"]
        rows_M = inputs.targets["rows"] if inputs.rows is None else inputs.rows.rows
        student_TD = self.encoder(inputs.batch).last_hidden_state
        logits_MV = _wide(self.head.logits_of(F.embedding(rows_M, student_TD)))
        with torch.no_grad():
            teacher = self.teacher
            teacher_TD = teacher.encoder(inputs.batch, output_pooled=False).last_hidden_state
            targets_MV = _wide(teacher.logits_of(F.embedding(rows_M, teacher_TD)))
        soft = F.kl_div(
            torch.log_softmax(logits_MV / self.temperature, 1),
            torch.log_softmax(targets_MV / self.temperature, 1),
            reduction="sum",
            log_target=True,
        )
        cosines_T = F.cosine_similarity(_wide(student_TD), _wide(teacher_TD), dim=1)
        correct = None if self.training else (logits_MV.argmax(1) == labels_M).sum()
        hard = F.cross_entropy(logits_MV, labels_M, reduction="sum")
        return {
            "soft": LossSum(self.temperature**2 * soft, counts["soft"]),
            "mlm": LossSum(hard, counts["mlm"], correct),
            "cosine": LossSum((1.0 - cosines_T).sum(), counts["cosine"]),
        }

    def save_pretrained(self, directory: str | os.PathLike[str]) -> None:
        """Write the student with its masked-language-model head."""
        self.head.save_pretrained(directory)


def _wide(values: Tensor) -> Tensor:
    return values.to(torch.promote_types(values.dtype, torch.float32))


def take_layers(student: MaskedLM, teacher: MaskedLM) -> None:
    """Initialise a student by its teacher's embeddings, head and evenly spaced blocks.

    The first block is the teacher's first. Weights that the student lacks, such as segment
    embeddings, are left out. Raises :class:`ConfigError` where sizes differ, or the number of
    blocks does not divide the teacher's.
    """
    blocks, teacher_blocks = student.encoder.blocks, teacher.encoder.blocks
    if len(teacher_blocks) % len(blocks):
        raise ConfigError(
            f"the student has {len(blocks)} blocks, which do not divide the teacher's "
            f"{len(teacher_blocks)}; choose a divisor"
        )
    step = len(teacher_blocks) // len(blocks)
    parts: list[tuple[nn.Module, nn.Module]] = [
        (student.encoder.embedding, teacher.encoder.embedding),
        (student.head, teacher.head),
        *((block, teacher_blocks[step * place]) for place, block in enumerate(blocks)),
    ]
    for own, other in parts:
        state = other.state_dict()
        kept = {name: state[name] for name in own.state_dict() if name in state}
        try:
            own.load_state_dict(kept)
        except RuntimeError as error:
            raise ConfigError(f"the student's sizes are not the teacher's: {error}") from error
