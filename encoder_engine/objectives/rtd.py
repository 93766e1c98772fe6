"""Replaced token detection (Clark et al. 2020): detect tokens that a small generator replaced.

Dimensions: T tokens, M hidden tokens, V vocabulary.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor

from encoder_engine.errors import ConfigError
from encoder_engine.models.heads import MaskedLM, ReplacedTokens
from encoder_engine.models.training_model import Inputs, LossSum, TrainingModel

if TYPE_CHECKING:
    import os

    from encoder_engine.models import Encoder

__all__ = ["DetectionModel", "draw_tokens"]


class DetectionModel(TrainingModel):
    """ELECTRA: a generator that fills masked tokens, and an encoder that detects the replaced ones.

    A sample of the generator replaces each masked token; a sample equal to the original counts as
    original. No gradient passes through the sampling. Generator and encoder share the tables of
    tokens, positions and segments, and both train these. Takes inputs that :class:`MLM` masked.
    Raises :class:`ConfigError` for tables of different sizes.
    """

    def __init__(
        self,
        encoder: Encoder,
        generator: Encoder,
        *,
        generator_weight: float = 1.0,
        detection_weight: float = 50.0,
    ) -> None:
        super().__init__()
        self.encoder = encoder
        self.generator, self.detector = MaskedLM(generator), ReplacedTokens(encoder)
        for name in ("tokens", "positions", "segments"):
            shared, own = (getattr(e.embedding, name) for e in (encoder, generator))
            if shared is None:
                continue
            if shared.weight.shape != own.weight.shape:
                raise ConfigError(
                    f"the generator's {name} are {list(own.weight.shape)}, the encoder's "
                    f"{list(shared.weight.shape)}; they are one table, so give both one "
                    "embedding_size"
                )
            own.weight = shared.weight
        self.weights = {"mlm": generator_weight, "rtd": detection_weight}

    @property
    def encoders(self) -> tuple[Encoder, ...]:
        """The encoders that are trained: the one that detects, and the generator's."""
        return self.encoder, self.generator.encoder

    def counts(self, inputs: Inputs) -> dict[str, int]:
        """Return the number of terms of each loss: masked tokens for ``mlm``, all for ``rtd``."""
        return {"mlm": inputs.targets["rows"].shape[0], "rtd": inputs.batch.num_tokens}

    def forward(self, inputs: Inputs) -> dict[str, LossSum]:
        """Return the summed losses of the generator, ``mlm``, and of the detection, ``rtd``."""
        counts, labels_M = self.counts(inputs), inputs.targets["labels"]
        logits_MV = self._generate(inputs)
        generated = F.cross_entropy(logits_MV, labels_M, reduction="sum")
        rows_M = inputs.targets["rows"] if inputs.rows is None else inputs.rows.rows
        original_T = inputs.batch.input_ids.long().index_copy(0, rows_M, labels_M)
        seen_T = original_T.index_copy(0, rows_M, draw_tokens(logits_MV.detach()))
        batch = inputs.batch.with_ids(seen_T)
        numbers_T = self.detector(batch).to(logits_MV.dtype)
        replaced_T = seen_T != original_T
        detected = F.binary_cross_entropy_with_logits(
            numbers_T, replaced_T.to(numbers_T.dtype), reduction="sum"
        )
        right: tuple[Tensor | None, Tensor | None] = (None, None)
        if not self.training:
            detected_T = (numbers_T > 0) == replaced_T
            right = (logits_MV.argmax(1) == labels_M).sum(), detected_T.sum()
        return {
            "mlm": LossSum(generated, counts["mlm"], right[0]),
            "rtd": LossSum(detected, counts["rtd"], right[1]),
        }

    def _generate(self, inputs: Inputs) -> Tensor:
        """Return the generator's logits of the masked tokens, [M, V], in float32 or wider."""
        output = self.generator.encoder(inputs.batch, output_pooled=False, rows=inputs.rows)
        hidden_MD = F.embedding(inputs.targets["rows"], output.last_hidden_state)
        logits_MV = self.generator.logits_of(hidden_MD)
        return logits_MV.to(torch.promote_types(logits_MV.dtype, torch.float32))

    def save_pretrained(self, directory: str | os.PathLike[str]) -> None:
        """Write the encoder with its detection head; the generator into ``generator/``."""
        self.detector.save_pretrained(directory)
        self.generator.save_pretrained(Path(directory) / "generator")


def draw_tokens(logits_MV: Tensor) -> Tensor:
    """Sample a token for each row from ``softmax(logits)``, int64 [M], by the Gumbel-max trick."""
    noise_MV = torch.empty_like(logits_MV).exponential_().clamp_min_(1e-30)
    return (logits_MV - noise_MV.log()).argmax(1)
