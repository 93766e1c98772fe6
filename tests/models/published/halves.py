"""Encoders of models of transformers that have no class for the encoder alone."""

from __future__ import annotations

import math
from typing import Any, ClassVar

from torch import nn  # noqa: TC002 - transformers evaluates annotations
from transformers.models.bart import modeling_bart
from transformers.models.mbart import modeling_mbart

__all__ = ["BartEncoderModel", "MBartEncoderModel"]


class _Half:
    """The encoder of a model, by the names that the whole model gives its tensors."""

    _tied_weights_keys: ClassVar = {"encoder.embed_tokens.weight": "shared.weight"}
    shared: nn.Module
    encoder: Any

    def get_input_embeddings(self) -> nn.Module:
        return self.shared

    def set_input_embeddings(self, value: nn.Module) -> None:
        self.shared = self.encoder.embed_tokens = value

    def forward(self, input_ids: Any = None, **inputs: Any) -> Any:
        return self.encoder(input_ids, **inputs)


class BartEncoderModel(_Half, modeling_bart.BartPreTrainedModel):  # type: ignore[no-untyped-call]
    """BART's encoder."""

    def __init__(self, config: Any) -> None:
        super().__init__(config)
        scale = math.sqrt(config.d_model) if config.scale_embedding else 1.0
        self.shared = modeling_bart.BartScaledWordEmbedding(
            config.vocab_size, config.d_model, config.pad_token_id, embed_scale=scale
        )
        self.encoder = modeling_bart.BartEncoder(config)
        self.post_init()  # type: ignore[no-untyped-call]


class MBartEncoderModel(_Half, modeling_mbart.MBartPreTrainedModel):  # type: ignore[no-untyped-call]
    """The encoder of mBART."""

    def __init__(self, config: Any) -> None:
        super().__init__(config)
        scale = math.sqrt(config.d_model) if config.scale_embedding else 1.0
        self.shared = modeling_mbart.MBartScaledWordEmbedding(
            config.vocab_size, config.d_model, config.pad_token_id, embed_scale=scale
        )
        self.encoder = modeling_mbart.MBartEncoder(config)
        self.post_init()  # type: ignore[no-untyped-call]
