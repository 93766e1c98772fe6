"""Launch shapes of the masked projection's kernels.

They were chosen by the registers they take (tests/golden/kernel_resources.json has the spills), and
were not timed beside other shapes.
"""

from __future__ import annotations

from functools import cache
from typing import NamedTuple

from ..common.launch import cdiv
from ..common.pinned import pinned

MOST_SPLITS = 128
# Vocabulary columns of one part of the tiled backward pass: a multiple of the kernel's block, which
# would write into the next row otherwise.
PART_COLUMNS = 8192
# Columns a program takes at a time from a row of stored logits.
BLOCK_LOGITS = 4096
LOGITS_WARPS = 4
# Rows of stored logits begin at multiples of so many elements: whole vectors, whole tiles.
ROW_MULTIPLE = 64
# Bytes of a whole vector.
VECTOR = 16


class Launch(NamedTuple):
    """Launch shape: rows, vocabulary columns and features of a block, warps, pipeline stages."""

    block_rows: int
    block_columns: int
    block_width: int
    num_warps: int
    num_stages: int


def statistics_launch(itemsize: int) -> Launch:
    """Return the launch shape of the tiled forward kernel, which computes each row's logsumexp.

    ``itemsize``: bytes of an element. For 2 bytes a block has 128 columns of the vocabulary: with
    256, as in the backward kernel, it would spill registers.
    """
    launch = Launch(64, 64, 32, 4, 2) if itemsize == 4 else Launch(128, 128, 64, 8, 3)
    return pinned("projection_statistics", launch)


def gradient_launch(itemsize: int) -> Launch:
    """Return the launch shape of the tiled backward kernel."""
    launch = Launch(64, 64, 32, 4, 2) if itemsize == 4 else Launch(128, 256, 64, 8, 3)
    return pinned("projection_gradient", launch)


@cache
def tiles_of_a_split(row_blocks: int, num_tiles: int, processors: int) -> int:
    """Return how many tiles of the vocabulary one program should multiply.

    ``row_blocks``, ``num_tiles``: blocks of rows, and tiles of the whole vocabulary.
    ``processors``: the GPU's multiprocessors. The estimated time is waves of programs times (tiles
    of a program + 0.5): starting and ending a program takes about half a tile.
    """

    def cost(splits: int) -> float:
        tiles = cdiv(num_tiles, splits)
        programs = row_blocks * cdiv(num_tiles, tiles)
        waves = cdiv(programs, processors)
        return waves * (tiles + 0.5)

    best = min(range(1, min(num_tiles, MOST_SPLITS) + 1), key=cost)
    return cdiv(num_tiles, best)


def whole_vectors(num_columns: int, itemsize: int) -> list[slice]:
    """Return one or two slices of the logits' columns: as many as whole vectors hold, and the rest.

    A vector has 16 bytes. cuBLAS takes kernels made for Ampere where rows are not whole vectors:
    products of BERT's 30,522 columns in bfloat16 ran at a third of the peak of an NVIDIA H200.
    """
    multiple = VECTOR // itemsize
    whole = num_columns // multiple * multiple
    bounds = ((0, whole), (whole, num_columns))
    return [slice(start, stop) for start, stop in bounds if start < stop]


def padded(vocab_size: int) -> int:
    """Return how many columns a row of stored logits has in memory, padding included."""
    return -(-vocab_size // ROW_MULTIPLE) * ROW_MULTIPLE
