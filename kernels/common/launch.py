"""Launch shapes that the row-wise kernels share."""

from __future__ import annotations

from typing import NamedTuple

import triton


class RowTile(NamedTuple):
    """Rows and (padded) columns of a program's tile, and its warps."""

    rows: int
    width: int
    num_warps: int


def row_tile(width: int, *, most_elements: int = 8192) -> RowTile:
    """Return a tile of whole rows: about 16 elements a thread, several rows if they are short."""
    block_width = triton.next_power_of_2(max(width, 16))
    rows = max(1, min(16, most_elements // 4 // block_width))
    num_warps = min(16, max(4, block_width * rows // 512))
    return RowTile(rows, block_width, num_warps)
