"""Lists the spans of words in packed sequences.

Dimensions: S spans, B sequences.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, NamedTuple

import numpy as np

if TYPE_CHECKING:
    import numpy.typing as npt

    LongArray = npt.NDArray[np.int64]

__all__ = ["SpanList", "SpanSummary", "list_spans"]

SpanSummary = Literal["mean", "attention"]


class SpanList(NamedTuple):
    """S spans of packed words, ordered by width, then by first word; int64 [S] each.

    ``starts``, ``stops``: a span has the words ``start`` to ``stop - 1``, numbered in the packed
    batch.
    ``owners``: the index of each span's sequence.
    """

    starts: LongArray
    stops: LongArray
    owners: LongArray

    def find(self, starts: LongArray, stops: LongArray) -> LongArray:
        """Return the index of each given span in this list; -1 for one that is not in the list."""
        scale = int(self.stops.max(initial=0)) + 1
        widths = self.stops - self.starts
        keys = widths * scale + self.starts
        wanted = (stops - starts) * scale + starts
        places = np.searchsorted(keys, wanted)
        there = places < len(keys)
        there[there] = keys[places[there]] == wanted[there]
        return np.where(there, places, -1)


def list_spans(offsets: npt.NDArray[np.integer], max_width: int) -> SpanList:
    """Return all spans of 1 to ``max_width`` words within sequences.

    ``offsets``: the first word of each sequence, then the number of words, [B + 1].
    """
    offsets = offsets.astype(np.int64)
    owners = np.repeat(np.arange(len(offsets) - 1), np.diff(offsets))
    room = offsets[1:][owners] - np.arange(len(owners))
    starts = [np.flatnonzero(room >= width) for width in range(1, max_width + 1)]
    stops = [found + width for width, found in enumerate(starts, start=1)]
    first = np.concatenate([np.zeros(0, np.int64), *starts])
    return SpanList(first, np.concatenate([np.zeros(0, np.int64), *stops]), owners[first])
