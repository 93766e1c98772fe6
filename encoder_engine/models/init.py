"""Random initialisation as BERT's authors published it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import nn

if TYPE_CHECKING:
    from encoder_engine.models.spec import EncoderSpec

__all__ = ["initialise"]


def initialise(module: nn.Module, spec: EncoderSpec) -> None:
    """Draw weights from N(0, initializer_range^2), biases 0 (Devlin et al. 2019).

    Norms stay as they are made, 1 and 0. The embedding of the padding id is zero. Draws from
    torch's global generator. What is on no device is left as it is.
    """
    if any(weight.is_meta for weight in module.parameters()):
        return
    with torch.no_grad():
        for part in module.modules():
            if isinstance(part, nn.Linear):
                part.weight.normal_(0.0, spec.initializer_range)
                if part.bias is not None:
                    part.bias.zero_()
            elif isinstance(part, nn.Embedding):
                part.weight.normal_(0.0, spec.initializer_range)
        tokens = module.get_submodule("embedding.tokens")
        assert isinstance(tokens, nn.Embedding)
        if spec.embedding.padding_id is not None:
            tokens.weight[spec.embedding.padding_id].zero_()
