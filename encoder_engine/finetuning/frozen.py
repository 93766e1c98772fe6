"""Computes a frozen encoder's outputs once per row instead of once per epoch."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import torch

from encoder_engine.tasks.batching import FEATURES
from encoder_engine.tasks.items import Items, Ragged

if TYPE_CHECKING:
    from encoder_engine.finetuning.data import TaskData
    from encoder_engine.tasks.task import TaskModel

__all__ = ["with_features"]


def with_features(data: TaskData, model: TaskModel, *, batch_tokens: int) -> TaskData:
    """Return the data with cached inputs of the head, if the model's encoder is frozen.

    A pooler may still be trained, because it reads the cached rows. Batches: as in evaluation.
    """
    encoder = model.encoder
    trained = {id(p) for p in model.parameters() if p.requires_grad}
    trained -= set() if encoder.pooler is None else {id(p) for p in encoder.pooler.parameters()}
    if any(id(parameter) in trained for parameter in encoder.parameters()):
        return data
    dev = None if data.dev_items is None else _computed(data, data.dev_items, model, batch_tokens)
    train = _computed(data, data.train_items, model, batch_tokens)
    return replace(data, train_items=train, dev_items=dev)


def _computed(data: TaskData, items: Items, model: TaskModel, batch_tokens: int) -> Items:
    """Return the items with the column ``features``; unchanged where the model has none."""
    device, was_training = model.encoder.device, model.training
    parts = []
    model.eval()
    try:
        for numbers in items.batches(batch_tokens):
            inputs = data.task.collate(items.take(numbers)).to(device)
            with torch.no_grad():
                found = model.features(inputs)
            if found is None:
                return items
            parts.append(found.cpu().numpy())
    finally:
        model.train(was_training)
    column = Ragged(np.concatenate(parts), data.task.feature_offsets(items))
    return replace(items, columns={**items.columns, FEATURES: column})
