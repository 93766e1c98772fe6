"""Adds a new head for a task, with the names of its outputs, to an encoder."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

import torch

from encoder_engine.models.init import draw_weights
from encoder_engine.models.layers import Pooler

if TYPE_CHECKING:
    from collections.abc import Sequence

    from encoder_engine.models import Encoder
    from encoder_engine.models.heads import HeadModel

__all__ = ["new_head_model"]

Model = TypeVar("Model", bound="HeadModel")


def new_head_model(kind: type[Model], encoder: Encoder, labels: Sequence[str]) -> Model:
    """Make a head model with one output per label; adds a pooler if the head needs one.

    ``kind``: the class of the model, such as that for sequence classification.
    A pooler that the head does not read is frozen: no loss trains it, and DDP would wait for it.

    Weights are drawn from N(0, initializer_range^2) by torch's global generator: the same seed
    before the call draws the same head. Biases are 0.
    """
    names = {str(number): name for number, name in enumerate(labels)}
    encoder.config["id2label"] = names
    encoder.config["label2id"] = {name: int(number) for number, name in names.items()}
    encoder.config.pop("num_labels", None)
    state = torch.get_rng_state()
    model = kind(encoder)
    # Construction has drawn numbers of its own.
    torch.set_rng_state(state)
    with torch.no_grad():
        draw_weights(model.head, encoder.spec.initializer_range)
        if model.rows == "pooled" and encoder.pooler is None:
            encoder.pooler = Pooler(encoder.spec)
            draw_weights(encoder.pooler, encoder.spec.initializer_range)
            encoder.pooler.to(device=encoder.device, dtype=encoder.dtype)
        elif model.rows != "pooled" and encoder.pooler is not None:
            encoder.pooler.requires_grad_(False)
    return model
