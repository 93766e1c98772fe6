"""Computes a frozen encoder's outputs once per row instead of once per epoch."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import torch

from encoder_engine.tasks.batching import FEATURES
from encoder_engine.tasks.items import Items, Ragged

if TYPE_CHECKING:
    from typing import Any

    from encoder_engine.tasks.task import Task, TaskModel

__all__ = ["with_features"]


def with_features(
    items: Items, task: Task[Any, Any], model: TaskModel, *, batch_tokens: int
) -> Items:
    """Return items with cached inputs of the head, if the model has any and its encoder is frozen.

    A pooler may still be trained, because it reads the cached rows. Batches: as in evaluation.
    """
    encoder, was_training = model.encoder, model.training
    trained = {id(p) for p in model.parameters() if p.requires_grad}
    trained -= set() if encoder.pooler is None else {id(p) for p in encoder.pooler.parameters()}
    if any(id(parameter) in trained for parameter in encoder.parameters()):
        return items
    parts = []
    model.eval()
    try:
        for numbers in items.batches(batch_tokens):
            inputs = task.collate(items.take(numbers)).to(encoder.device)
            # Evaluation may ask for the rows under autocast; they are cached in full precision.
            with torch.no_grad(), torch.autocast(encoder.device.type, enabled=False):
                found = model.features(inputs)
            if found is None:
                return items
            parts.append(found.cpu().numpy())
    finally:
        model.train(was_training)
    column = Ragged(np.concatenate(parts), task.feature_offsets(items))
    return replace(items, columns={**items.columns, FEATURES: column})
