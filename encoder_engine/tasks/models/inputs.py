"""Converts batches of NumPy arrays to the tensors that models take."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import torch

from encoder_engine.models.training_model import Inputs
from encoder_engine.packing import PackedBatch, SelectedRows, Sequences

if TYPE_CHECKING:
    from encoder_engine.packing.token_rows import TokenRows
    from encoder_engine.tasks.items import TaskBatch

__all__ = ["as_inputs", "packed_batch"]


def as_inputs(batch: TaskBatch) -> Inputs:
    """Convert a batch of arrays to tensors on the CPU."""
    packed = packed_batch(batch.rows)
    rows = None
    if batch.chosen is not None:
        rows = SelectedRows(torch.from_numpy(batch.chosen), packed.sequences)
    targets = {
        name: torch.from_numpy(np.ascontiguousarray(values))
        for name, values in batch.targets.items()
    }
    return Inputs(packed, targets, rows)


def packed_batch(rows: TokenRows) -> PackedBatch:
    """Return token rows as a packed batch on the CPU."""
    types = rows.type_ids
    return PackedBatch(
        input_ids=torch.from_numpy(np.ascontiguousarray(rows.ids)),
        sequences=Sequences(torch.from_numpy(np.ascontiguousarray(rows.cu_seqlens))),
        token_type_ids=None if types is None else torch.from_numpy(np.ascontiguousarray(types)),
    )
