"""Dropout without a stored mask: the mask is a pure function of seed, row and column."""

import triton
import triton.language as tl


@triton.jit
def keep_scale(seed, rows, columns, dropout):
    """Return 0 where dropped and 1 / (1 - dropout) where kept, float32 [rows, columns].

    Philox 4x32-10 (Salmon et al. 2011) on (column, low word of row, high word of row, 0) is the
    same for every tiling: backward redraws the mask of forward.
    """
    rows = rows.to(tl.int64)
    low = (rows & 0xFFFFFFFF).to(tl.uint32)[:, None]
    high = (rows >> 32).to(tl.uint32)[:, None]
    column = columns.to(tl.uint32)[None, :]
    zero = column * 0 + low * 0
    random, _, _, _ = tl.philox(seed, column + zero, low + zero, high + zero, zero)
    return tl.where(tl.uint_to_uniform_float(random) >= dropout, 1.0 / (1.0 - dropout), 0.0)
