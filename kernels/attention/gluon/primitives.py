"""Steps that the kernels in Gluon share, and one name for a function that Triton renamed."""

from __future__ import annotations

from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import tma

# Triton 3.9 renamed it.
async_load = getattr(tma, "async_load", None) or tma.async_copy_global_to_shared


@gluon.jit
def keep(x):
    """Keep the registers of ``x`` until here: an asynchronous matrix product may still read them.

    The inline assembly is volatile, so that what computes ``x`` stays in front of it.
    """
    return gl.inline_asm_elementwise("", "=r,0", [x], dtype=x.dtype, is_pure=False, pack=2)


@gluon.jit
def next_place(stage, phase, STAGES: gl.constexpr):
    """Return the stage and the phase of the place in the ring buffer after this one."""
    wraps = stage + 1 == STAGES
    return gl.where(wraps, 0, stage + 1), gl.where(wraps, phase ^ 1, phase)


@gluon.jit
def clear_rows(block, first, BLOCK_ROWS: gl.constexpr, HEAD_DIM: gl.constexpr):
    """Set the rows of a block in shared memory from ``first`` on to zero, by four warps."""
    # At most 32 bytes of a thread: a producer's has 40 registers.
    part_rows: gl.constexpr = 2048 // HEAD_DIM
    layout: gl.constexpr = gl.BlockedLayout(
        [1, 8], [256 // HEAD_DIM, HEAD_DIM // 8], [4, 1], [1, 0]
    )
    places = gl.arange(0, part_rows, layout=gl.SliceLayout(1, layout))
    zeros = gl.zeros([part_rows, HEAD_DIM], block.dtype, layout)
    for part in gl.static_range(BLOCK_ROWS // part_rows):
        rows = block.slice(part_rows * part, part_rows)
        if part_rows * part >= first:
            rows.store(zeros)
        elif part_rows * (part + 1) > first:
            inside = gl.expand_dims(part_rows * part + places < first, 1)
            rows.store(gl.where(inside, rows.load(layout), zeros))
