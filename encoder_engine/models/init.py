"""Initialises weights randomly, as BERT does (Devlin et al. 2019)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import nn

if TYPE_CHECKING:
    from encoder_engine.families.facts.spec import EncoderSpec

__all__ = ["draw_weights", "initialise"]


def initialise(module: nn.Module, spec: EncoderSpec) -> None:
    """Draw weights from N(0, initializer_range^2), biases 0 (Devlin et al. 2019).

    Norms keep the factor 1 and bias 0. The embedding of the padding id is zero. Numbers come from
    torch's global generator. Nothing is drawn if a parameter is on the meta device.
    """
    if any(weight.is_meta for weight in module.parameters()):
        return
    with torch.no_grad():
        draw_weights(module, spec.initializer_range)
        tokens = module.get_submodule("embedding.tokens")
        assert isinstance(tokens, nn.Embedding)
        if spec.embedding.padding_id is not None:
            tokens.weight[spec.embedding.padding_id].zero_()


def draw_weights(module: nn.Module, deviation: float) -> None:
    """Draw weights of dense layers, convolutions, tables from N(0, deviation^2); biases are 0."""
    for part in module.modules():
        if isinstance(part, (nn.Linear, nn.Embedding, nn.Conv1d)) and not part.weight.is_meta:
            part.weight.normal_(0.0, deviation)
        if (
            isinstance(part, (nn.Linear, nn.Conv1d))
            and part.bias is not None
            and not part.bias.is_meta
        ):
            part.bias.zero_()
