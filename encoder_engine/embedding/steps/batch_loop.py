"""Computes token rows batch by batch on an engine; halves batches that exceed its memory."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

import numpy as np

from encoder_engine.embedding.engines.engine import OutOfDeviceMemoryError
from encoder_engine.embedding.steps.batching import plan_batches
from encoder_engine.errors import DeviceMemoryError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from encoder_engine.embedding.engines.engine import Engine
    from encoder_engine.embedding.limits import MemoryLimit
    from encoder_engine.packing.token_rows import RowArray, TokenRows

__all__ = ["compute_batches"]

# What an engine computes of a batch.
Computed = TypeVar("Computed")


def compute_batches(
    engine: Engine,
    rows: TokenRows,
    compute: Callable[[TokenRows], Computed],
    *,
    batch_tokens: int,
    limit: MemoryLimit,
    batch_size: int | None = None,
    numbers: RowArray | None = None,
    row_name: str = "text",
) -> Iterator[tuple[RowArray, Computed]]:
    """Yield the rows of each batch and the result of ``compute``, the longest rows first.

    batch_tokens: the most tokens of a batch.
    batch_size: the most rows of a batch; None: no limit.
    limit: lowered to half of a batch that exceeds the device's memory; the rows that are left are
        grouped anew.
    numbers: the number of each row in the stream, for the message; None: from 0.

    Raises :class:`DeviceMemoryError` for a single row that does not fit.
    """
    lengths = rows.lengths
    planned = plan_batches(lengths, limit.cap(batch_tokens), batch_size)
    while planned:
        found = _compute_if_it_fits(rows.take(planned[0]), compute)
        if found is None:
            first = int(planned[0][0])
            if len(planned[0]) == 1:
                row = first if numbers is None else int(numbers[first])
                raise DeviceMemoryError(
                    f"{row_name} {row} has {int(lengths[first])} tokens, and {engine.device} has "
                    "too little free memory to embed it alone; lower max_seq_length, end what else "
                    "holds its memory, or choose another device",
                    row=row,
                )
            limit.lower(int(lengths[planned[0]].sum()))
            left = np.concatenate(planned)
            smaller = plan_batches(lengths[left], limit.cap(batch_tokens), batch_size)
            planned = [left[batch] for batch in smaller]
            continue
        yield planned.pop(0), found


def _compute_if_it_fits(
    rows: TokenRows, compute: Callable[[TokenRows], Computed]
) -> Computed | None:
    """Compute a batch; None where it exceeds the device's memory."""
    try:
        return compute(rows)
    except OutOfDeviceMemoryError:
        return None
