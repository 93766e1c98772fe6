"""Caches the outputs of a frozen encoder: computed once per row, instead of once per epoch."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import torch

from encoder_engine.errors import ConfigError
from encoder_engine.tasks.items import FEATURES, Items, Ragged

if TYPE_CHECKING:
    from typing import Any

    import numpy.typing as npt
    from torch import Tensor

    from encoder_engine.tasks.models.task_model import TaskModel
    from encoder_engine.tasks.task import Task

__all__ = ["with_features"]


def with_features(
    items: Items, task: Task[Any, Any], model: TaskModel, *, batch_tokens: int
) -> Items:
    """Return items with the encoder's outputs that the head reads, as a further column.

    Items are returned as they are if the encoder is trained or the model cannot use a cache. A
    pooler may still be trained, because it reads the cached rows. Batches are formed as in
    evaluation.

    Raises :class:`ConfigError` after the first batch if there is no memory for all rows.
    """
    encoder, was_training = model.encoder, model.training
    trained = {id(p) for p in model.parameters() if p.requires_grad}
    trained -= set() if encoder.pooler is None else {id(p) for p in encoder.pooler.parameters()}
    if any(id(parameter) in trained for parameter in encoder.parameters()):
        return items
    offsets = task.feature_offsets(items)
    features: npt.NDArray[Any] | None = None
    filled = 0
    model.eval()
    try:
        for numbers in items.batches(batch_tokens):
            inputs = task.collate(items.take(numbers)).to(encoder.device)
            with torch.no_grad():
                found = model.features(inputs)
            if found is None:
                return items
            if features is None:
                features = _empty_like(found.cpu(), int(offsets[-1]))
            features[filled : filled + len(found)] = found.cpu().numpy()
            filled += len(found)
    finally:
        model.train(was_training)
    if features is None:
        return items
    return replace(items, columns={**items.columns, FEATURES: Ragged(features, offsets)})


def _empty_like(found: Tensor, num_rows: int) -> npt.NDArray[Any]:
    """Allocate an array for ``num_rows`` rows of the shape and dtype of those in ``found``.

    Concatenating batches would take twice the memory. Raises :class:`ConfigError` without memory.
    """
    shape = (num_rows, *found.shape[1:])
    try:
        return np.empty(shape, found.numpy().dtype)
    except MemoryError as error:
        size = num_rows * found[0].numel() * found.element_size()
        raise ConfigError(
            f"the outputs of the frozen encoder are {size / 2**30:,.1f} GiB ({num_rows} rows of "
            f"{found.shape[1]}), for which there is no memory; set model.cache_frozen=false to "
            "compute them in every epoch"
        ) from error
