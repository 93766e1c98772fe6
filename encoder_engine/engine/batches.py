"""Computes texts' token ids on an engine, in batches of a token budget, halved if they do not fit.

How it works: rows are sorted by token count, the longest first, and consecutive rows fill a batch
up to ``batch_tokens``. Sorting puts rows of equal length together, so kernels that work on padded
tiles waste little, and the first batch needs the most memory: a device that is too small fails at
once. Batch borders are found by binary search in the cumulative token counts, one search per batch.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from encoder_engine.engine.protocol import OutOfDeviceMemoryError
from encoder_engine.errors import DeviceMemoryError

if TYPE_CHECKING:
    from collections.abc import Iterator

    import numpy.typing as npt

    from encoder_engine.engine.limits import MemoryLimit
    from encoder_engine.engine.outputs import Output
    from encoder_engine.engine.protocol import Engine, Vectors
    from encoder_engine.packing.token_rows import RowArray, TokenRows

__all__ = ["compute_batches", "plan_batches"]


def compute_batches(
    engine: Engine,
    rows: TokenRows,
    outputs: tuple[Output, ...],
    *,
    batch_tokens: int,
    limit: MemoryLimit,
    batch_size: int | None = None,
    numbers: RowArray | None = None,
    row_name: str = "text",
) -> Iterator[tuple[RowArray, tuple[Vectors, ...]]]:
    """Yield, batch by batch, the indices of rows and these rows' outputs, longest rows first.

    batch_tokens: the most tokens of a batch.
    batch_size: the most rows of a batch; None: no limit.
    limit: the token limit by memory, lowered to half of a batch that exceeds the device's memory;
    the remaining rows are then grouped again.
    numbers: the index of each row in the caller's stream, for messages; None: from 0.
    row_name: what messages call a row.

    Raises :class:`DeviceMemoryError` for a single row that does not fit.
    """
    lengths = rows.lengths
    planned = plan_batches(lengths, limit.cap(batch_tokens), batch_size)
    while planned:
        found = _run_if_it_fits(engine, rows.take(planned[0]), outputs)
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


def plan_batches(
    lengths: npt.NDArray[np.integer], batch_tokens: int, batch_size: int | None = None
) -> list[npt.NDArray[np.intp]]:
    """Group texts of similar length into batches of at most ``batch_tokens`` tokens.

    ``lengths``: tokens per text, [N]. ``batch_size``: the most texts of a batch. Returns the rows
    of each batch, the longest texts first. A text longer than the budget gets a batch of its own.
    """
    if len(lengths) == 1:
        return [np.zeros(1, dtype=np.intp)]
    order = np.argsort(-lengths.astype(np.int64), kind="stable")
    ends = np.cumsum(lengths[order].astype(np.int64))
    batches, start, spent = [], 0, 0
    while start < len(order):
        stop = int(np.searchsorted(ends, spent + batch_tokens, side="right"))
        stop = max(stop, start + 1)
        if batch_size is not None:
            stop = min(stop, start + batch_size)
        batches.append(order[start:stop])
        start, spent = stop, int(ends[stop - 1])
    return batches


def _run_if_it_fits(
    engine: Engine, rows: TokenRows, outputs: tuple[Output, ...]
) -> tuple[Vectors, ...] | None:
    """Compute a batch; return None if it exceeds the device's memory."""
    try:
        return engine.run(rows, *outputs)
    except OutOfDeviceMemoryError:
        return None
