"""The forward kernel with specialised warps, for calls without terms on Hopper: to be requested.

How it works: Triton splits the loop among three groups of four warps. One asks TMA for blocks of
keys and values; the other two own 64 rows each and wait for blocks, not for each other, so that the
exponentials of one overlap the products of the other (FlashAttention-3, Shah et al. 2024). The
descriptors are made in the kernel, as this needs, and end with the sequence: rows beyond it are
zeros, not the next sequence's. Every block is masked: at 64 rows a group exponentials take longer.

On an NVIDIA H200 with Triton 3.6 heads of 128 took 0.570 ms where the plain kernel took 0.639 (16
texts of 2,048 tokens), heads of 64 more time than the plain kernel. A launch shape with
``specialized`` and two stages selects it, see ``pin``: it is not the default, because with three
stages or more the results were NaN, which points to a race.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
import triton
import triton.language as tl

from ..common.launch import on_device
from .descriptors import can_describe
from .tile import program_tile, span

if TYPE_CHECKING:
    from torch import Tensor

    from .blocks import Blocks
    from .config import Launch
    from .differentiable import Call

# Stages of the pipeline at most: with three, Triton 3.6's results were NaN.
MOST_STAGES = 2


@triton.jit
def _attention_specialized_kernel(
    query_pointer,  # [T, H, D]
    key_pointer,  # [T, K, D]
    value_pointer,  # [T, K, D]
    output_pointer,  # [T, H, D] contiguous
    lse_pointer,  # float32 [H, T], of powers of two
    cu_seqlens_pointer,  # int32 [B + 1]
    tiles_pointer,  # int32 [tiles, 2]: sequence, block of rows
    num_queries,
    scale,
    QUERY_STRIDE: tl.constexpr,
    KEY_STRIDE: tl.constexpr,
    VALUE_STRIDE: tl.constexpr,
    NUM_HEADS: tl.constexpr,
    GROUP: tl.constexpr,
    HEAD_DIM: tl.constexpr,
    BLOCK_ROWS: tl.constexpr,
    BLOCK_KEYS: tl.constexpr,
):
    LOG2E: tl.constexpr = 1.4426950408889634
    WIDTH: tl.constexpr = NUM_HEADS * HEAD_DIM
    KEY_WIDTH: tl.constexpr = NUM_HEADS // GROUP * HEAD_DIM
    _tile, head, sequence, block = program_tile(tiles_pointer, NUM_HEADS)
    first, length = span(cu_seqlens_pointer, sequence)
    start = first.to(tl.int32)
    stop = start + length
    query_rows = tl.make_tensor_descriptor(
        query_pointer, [stop, WIDTH], [QUERY_STRIDE, 1], [BLOCK_ROWS, HEAD_DIM]
    )
    key_rows = tl.make_tensor_descriptor(
        key_pointer, [stop, KEY_WIDTH], [KEY_STRIDE, 1], [BLOCK_KEYS, HEAD_DIM]
    )
    value_rows = tl.make_tensor_descriptor(
        value_pointer, [stop, KEY_WIDTH], [VALUE_STRIDE, 1], [BLOCK_KEYS, HEAD_DIM]
    )
    query = query_rows.load([start + block * BLOCK_ROWS, head * HEAD_DIM])
    column = (head // GROUP) * HEAD_DIM
    factor = scale * LOG2E
    m_i = tl.full([BLOCK_ROWS], float("-inf"), dtype=tl.float32)
    l_i = tl.zeros([BLOCK_ROWS], dtype=tl.float32)
    acc = tl.zeros([BLOCK_ROWS, HEAD_DIM], dtype=tl.float32)
    for at in tl.range(0, length, BLOCK_KEYS, warp_specialize=True):
        key = key_rows.load([start + at, column])
        dots = tl.dot(query, tl.trans(key))
        seen = at + tl.arange(0, BLOCK_KEYS) < length
        dots = tl.where(seen[None, :], dots, float("-inf"))
        m_new = tl.maximum(m_i, tl.max(dots, axis=1) * factor)
        p = tl.exp2(tl.fma(dots, factor, -m_new[:, None]))
        alpha = tl.exp2(m_i - m_new)
        l_i = l_i * alpha + tl.sum(p, axis=1)
        value = value_rows.load([start + at, column])
        acc = tl.dot(p.to(value.dtype), value, acc * alpha[:, None])
        m_i = m_new
    rows = block * BLOCK_ROWS + tl.arange(0, BLOCK_ROWS)
    own = first + rows
    places = own[:, None] * WIDTH + head * HEAD_DIM + tl.arange(0, HEAD_DIM)[None, :]
    kind = output_pointer.dtype.element_ty
    tl.store(output_pointer + places, (acc / l_i[:, None]).to(kind), mask=(rows < length)[:, None])
    lse = m_i + tl.log2(l_i)
    tl.store(lse_pointer + head.to(tl.int64) * num_queries + own, lse, mask=rows < length)


def can_specialize(call: Call, blocks: Blocks) -> bool:
    """Return whether the kernel takes a call: no terms, and a layout that TMA reads."""
    terms = (call.bias_HR, call.slopes_H, call.seed, call.window, call.entries_R)
    plain = all(x is None for x in terms) and not call.causal
    every_row = len(blocks.places) == 0 and len(blocks.global_places) == 0
    return plain and every_row and all(can_describe(x) for x in call[:3])


@on_device
def attention_forward_specialized(
    call: Call, blocks: Blocks, launch: Launch, output_THD: Tensor, lse_HT: Tensor
) -> None:
    """Launch the kernel; writes the output and the log2-sum-exp2 of each row.

    Raises ``ValueError`` for a launch shape of more than ``MOST_STAGES`` stages.
    """
    if launch.num_stages > MOST_STAGES:
        raise ValueError(
            f"specialised warps take at most {MOST_STAGES} stages, more give NaN on Hopper: "
            f"{launch}; pin num_stages={MOST_STAGES}"
        )
    query, key, value = call[:3]
    num_rows, num_heads, head_dim = query.shape
    triton.set_allocator(_allocate)
    _attention_specialized_kernel[(len(blocks.forward_tiles) * num_heads,)](
        query,
        key,
        value,
        output_THD,
        lse_HT,
        blocks.cu_seqlens,
        blocks.forward_tiles,
        num_rows,
        call.scale,
        QUERY_STRIDE=query.stride(0),
        KEY_STRIDE=key.stride(0),
        VALUE_STRIDE=value.stride(0),
        NUM_HEADS=num_heads,
        GROUP=call.group,
        HEAD_DIM=head_dim,
        **launch.options(),
    )


def _allocate(size: int, _alignment: int, _stream: int | None) -> Tensor:
    """Allocate the memory of the descriptors of a launch."""
    return torch.empty(size, dtype=torch.int8, device="cuda")
