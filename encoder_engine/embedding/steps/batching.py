"""Cuts a stream of texts into windows, and a window's texts into batches of a token budget.

How it works: a window holds 4,096 texts or about 16 million characters, which bounds the memory of
a stream of any length. Within a window, texts are sorted by token count, the longest first, and
consecutive texts fill a batch up to ``batch_tokens``. Sorting puts texts of equal length together,
so kernels that work on padded tiles waste little, and the first batch needs the most memory: a
device that is too small fails at once. The batches are found on the cumulative token counts by
binary search, one search a batch.
"""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING, TypeVar

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    import numpy.typing as npt

Row = TypeVar("Row")

# A window is tokenized, sorted by length and embedded as a whole; its size bounds the memory.
WINDOW_TEXTS = 4096
WINDOW_CHARACTERS = 16_000_000


def windows(rows: Iterator[Row], characters_of: Callable[[Row], int]) -> Iterator[list[Row]]:
    """Cut a stream into lists of at most 4,096 texts and about 16 million characters."""
    window: list[Row] = []
    characters = 0
    for row in rows:
        window.append(row)
        characters += characters_of(row)
        if len(window) == WINDOW_TEXTS or characters >= WINDOW_CHARACTERS:
            yield window
            window, characters = [], 0
    if window:
        yield window


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


def first_rows(rows: npt.NDArray[np.intp], limit: int = 5) -> str:
    """Format row numbers for a message: the first ``limit``, and the count of the others."""
    shown = ", ".join(str(int(row)) for row in islice(rows, limit))
    return shown if len(rows) <= limit else f"{shown} and {len(rows) - limit} more"
