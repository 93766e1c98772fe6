"""Attention over packed sequences for Hopper: the forward kernel in Gluon.

How it works (FlashAttention-3, Shah et al. 2024): the warps of a program have roles. Four warps,
the producer, ask TMA for blocks of queries, keys and values; each consumer, four warps too, owns 64
query rows. A consumer asks for two products, the scores of the next block and ``P V`` of this one,
and computes the exponentials of the next block while the second runs. Blocks come in a ring of
shared memory. Two mbarriers a block, ``ready`` and ``empty``, say who may touch it; nobody else
waits. Programs stay on their multiprocessor and take every so-many-th tile of the list, so that the
producer loads the next tile while the consumers end this one.

The last, ragged block of keys comes first: it alone is masked, before the loop. Its rows beyond the
sequence are the neighbour's, whose values may be NaN, and 0 x NaN is no 0: the producer clears them
in shared memory before it hands the block over.

ptxas moves the wait for ``P V`` in front of the exponentials unless a branch stands between: the
wait for the next keys is that branch. With ``TURNS`` two consumers ask for products alternately, so
that the exponentials of one run beside the products of the other.
"""

from __future__ import annotations

from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import (
    fence_async_shared,
    mbarrier,
    warpgroup_mma,
    warpgroup_mma_wait,
)

from .primitives import async_load, clear_rows, keep, next_place


@gluon.jit
def _tile(index, num_tiles, lists, NUM_HEADS: gl.constexpr):
    """Return the sequence and the block of tile ``index``; past the list's end, of the last."""
    tile = gl.minimum(index // NUM_HEADS, num_tiles - 1)
    at = lists[0] + 2 * tile
    return gl.load(at), gl.load(at + 1)


@gluon.jit
def _span(sequence, lists):
    """Return the first row of a sequence and its length."""
    at = lists[1] + sequence
    start = gl.load(at)
    return start, gl.load(at + 1) - start


@gluon.jit
def _produce(
    descriptors,
    shared,
    ready,
    empty,
    tail_ready,
    lists,
    num_tiles,
    NUM_HEADS: gl.constexpr,
    GROUP: gl.constexpr,
    HEAD_DIM: gl.constexpr,
    BLOCK_KEYS: gl.constexpr,
    STAGES: gl.constexpr,
    CONSUMERS: gl.constexpr,
):
    """Load the blocks of query, key and value that consumers need, once their places are free."""
    query_rows, key_rows, value_rows = descriptors
    query_shared, key_shared, value_shared = shared
    query_ready, key_ready, value_ready = ready
    query_empty, key_empty, value_empty = empty
    # The first wait for room is over at once: it is for the phase before the first.
    query_phase, tail_phase = 1, 0
    key_stage, key_phase = 0, 1
    value_stage, value_phase = 0, 1
    for index in range(gl.program_id(0), num_tiles * NUM_HEADS, gl.num_programs(0)):
        head = index % NUM_HEADS
        sequence, block = _tile(index, num_tiles, lists, NUM_HEADS)
        start, length = _span(sequence, lists)
        row = block * (64 * CONSUMERS)
        # Tiles beyond the batch, where a CUDA graph has room for more, are of an empty sequence.
        if length > 0:
            column = (head // GROUP) * HEAD_DIM
            last = (length - 1) // BLOCK_KEYS * BLOCK_KEYS
            # In the order in which consumers multiply: the scores of a block come before P V of the
            # block in front. Queries wait for the end of the tile in front, its first keys do not.
            key_at = last
            value_at = last
            for place in range(0, length + BLOCK_KEYS, BLOCK_KEYS):
                if place < length:
                    mbarrier.wait(key_empty.index(key_stage), key_phase)
                    mbarrier.expect(key_ready.index(key_stage), key_rows.block_type.nbytes)
                    async_load(
                        key_rows,
                        [start + key_at, column],
                        key_ready.index(key_stage),
                        key_shared.index(key_stage),
                    )
                    key_at = place
                    key_stage, key_phase = next_place(key_stage, key_phase, STAGES)
                if place == 0:
                    mbarrier.wait(query_empty, query_phase)
                    query_phase ^= 1
                    mbarrier.expect(query_ready, CONSUMERS * query_rows.block_type.nbytes)
                    for part in gl.static_range(CONSUMERS):
                        async_load(
                            query_rows,
                            [start + row + 64 * part, head * HEAD_DIM],
                            query_ready,
                            query_shared.index(part),
                        )
                if place > 0:
                    mbarrier.wait(value_empty.index(value_stage), value_phase)
                    here = value_shared.index(value_stage)
                    if value_at + BLOCK_KEYS > length:
                        mbarrier.expect(tail_ready, value_rows.block_type.nbytes)
                        async_load(value_rows, [start + value_at, column], tail_ready, here)
                        mbarrier.wait(tail_ready, tail_phase)
                        tail_phase ^= 1
                        clear_rows(here, length - value_at, BLOCK_KEYS, HEAD_DIM)
                        # Products read shared memory by another way than stores write it.
                        fence_async_shared()
                        mbarrier.arrive(value_ready.index(value_stage), count=1)
                    else:
                        mbarrier.expect(
                            value_ready.index(value_stage), value_rows.block_type.nbytes
                        )
                        async_load(
                            value_rows,
                            [start + value_at, column],
                            value_ready.index(value_stage),
                            here,
                        )
                    value_at = place - BLOCK_KEYS
                    value_stage, value_phase = next_place(value_stage, value_phase, STAGES)


@gluon.jit
def _exponentials(scores, m_i, l_i, factor):
    """Return exponentials ``p`` of a block's scores, and ``alpha``, ``m_i`` and ``l_i`` after it.

    ``alpha`` is the factor by which sums of earlier blocks shrink.
    """
    m_new = gl.maximum(m_i, gl.max(scores, axis=1) * factor)
    p = gl.exp2(gl.fma(scores, factor, -gl.expand_dims(m_new, 1)))
    alpha = gl.exp2(m_i - m_new)
    return p, alpha, m_new, l_i * alpha + gl.sum(p, axis=1)


@gluon.jit
def _consume(
    shared,
    ready,
    empty,
    turn,
    results,
    lists,
    num_tiles,
    num_rows,
    factor,
    ME: gl.constexpr,
    NUM_HEADS: gl.constexpr,
    HEAD_DIM: gl.constexpr,
    BLOCK_KEYS: gl.constexpr,
    STAGES: gl.constexpr,
    CONSUMERS: gl.constexpr,
    TURNS: gl.constexpr,
):
    """Compute 64 query rows of each tile, and write their output and log2-sum-exp2."""
    scores_layout: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, BLOCK_KEYS, 16])
    acc_layout: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, HEAD_DIM, 16])
    weights_layout: gl.constexpr = gl.DotOperandLayout(0, acc_layout, 2)
    row_layout: gl.constexpr = gl.SliceLayout(1, scores_layout)
    acc_row_layout: gl.constexpr = gl.SliceLayout(1, acc_layout)
    # 16 bytes of a thread. Values move within four neighbours, by shuffles, not by shared memory.
    store_layout: gl.constexpr = gl.DistributedLinearLayout(
        reg_bases=[[0, 1], [0, 2], [0, 4], [8, 0], [0, 32]]
        + ([[0, 64]] if HEAD_DIM == 128 else []),
        lane_bases=[[0, 8], [0, 16], [1, 0], [2, 0], [4, 0]],
        warp_bases=[[16, 0], [32, 0]],
        block_bases=[],
        shape=[64, HEAD_DIM],
    )
    query_shared, key_shared, value_shared = shared
    query_ready, key_ready, value_ready = ready
    query_empty, key_empty, value_empty = empty
    output_pointer, lse_pointer = results
    kind: gl.constexpr = value_shared.dtype
    query = query_shared.index(ME)
    zeros = gl.zeros([64, BLOCK_KEYS], gl.float32, scores_layout)
    columns = gl.arange(0, BLOCK_KEYS, layout=gl.SliceLayout(0, scores_layout))
    query_phase, turns = 0, 0
    stage, phase = 0, 0
    program, num_programs = gl.program_id(0), gl.num_programs(0)
    # What a tile is, is known a tile ahead, and its entry in the list two: no load is waited for.
    sequence, tile_block = _tile(program, num_tiles, lists, NUM_HEADS)
    start, length = _span(sequence, lists)
    row = tile_block * (64 * CONSUMERS)
    sequence, tile_block = _tile(program + num_programs, num_tiles, lists, NUM_HEADS)
    for index in range(program, num_tiles * NUM_HEADS, num_programs):
        head = index % NUM_HEADS
        next_start, next_length = _span(sequence, lists)
        next_row = tile_block * (64 * CONSUMERS)
        sequence, tile_block = _tile(index + 2 * num_programs, num_tiles, lists, NUM_HEADS)
        if length > 0:
            num_blocks = (length + BLOCK_KEYS - 1) // BLOCK_KEYS
            m_i = gl.full([64], float("-inf"), gl.float32, row_layout)
            l_i = gl.zeros([64], gl.float32, row_layout)
            acc = gl.zeros([64, HEAD_DIM], gl.float32, acc_layout)
            mbarrier.wait(query_ready, query_phase)
            query_phase ^= 1
            mbarrier.wait(key_ready.index(stage), phase)
            if TURNS:
                mbarrier.wait(turn.index(ME), turns & 1)
            scores = warpgroup_mma(
                query, key_shared.index(stage).permute((1, 0)), zeros, use_acc=False, is_async=True
            )
            scores = warpgroup_mma_wait(0, deps=[scores])
            if TURNS:
                mbarrier.arrive(turn.index(1 - ME), count=1)
                turns += 1
            mbarrier.arrive(key_empty.index(stage), count=1)
            ragged = length - (num_blocks - 1) * BLOCK_KEYS
            scores = gl.where(gl.expand_dims(columns, 0) < ragged, scores, float("-inf"))
            p, alpha, m_i, l_i = _exponentials(scores, m_i, l_i, factor)
            weights = gl.convert_layout(p.to(kind), weights_layout, assert_trivial=True)
            next_stage, next_phase = next_place(stage, phase, STAGES)
            mbarrier.wait(key_ready.index(next_stage), next_phase, pred=num_blocks > 1)
            if TURNS:
                mbarrier.wait(turn.index(ME), turns & 1, pred=num_blocks > 1)
            for block in range(1, num_blocks):
                scores_under_way = warpgroup_mma(
                    query,
                    key_shared.index(next_stage).permute((1, 0)),
                    zeros,
                    use_acc=False,
                    is_async=True,
                )
                mbarrier.wait(value_ready.index(stage), phase)
                acc_under_way = warpgroup_mma(
                    weights, value_shared.index(stage), acc, is_async=True
                )
                if TURNS:
                    mbarrier.arrive(turn.index(1 - ME), count=1)
                    turns += 1
                scores, acc_under_way = warpgroup_mma_wait(
                    1, deps=[scores_under_way, acc_under_way]
                )
                mbarrier.arrive(key_empty.index(next_stage), count=1)
                p, alpha, m_i, l_i = _exponentials(scores, m_i, l_i, factor)
                next_weights = keep(
                    gl.convert_layout(p.to(kind), weights_layout, assert_trivial=True)
                )
                # The branch over which ptxas moves no exponential.
                after_stage, after_phase = next_place(next_stage, next_phase, STAGES)
                mbarrier.wait(
                    key_ready.index(after_stage), after_phase, pred=block + 1 < num_blocks
                )
                if TURNS:
                    mbarrier.wait(turn.index(ME), turns & 1, pred=block + 1 < num_blocks)
                acc = warpgroup_mma_wait(0, deps=[acc_under_way])
                keep(weights)
                mbarrier.arrive(value_empty.index(stage), count=1)
                acc = acc * gl.expand_dims(
                    gl.convert_layout(alpha, acc_row_layout, assert_trivial=True), 1
                )
                weights = next_weights
                stage, phase = next_stage, next_phase
                next_stage, next_phase = after_stage, after_phase
            mbarrier.arrive(query_empty, count=1)
            mbarrier.wait(value_ready.index(stage), phase)
            acc_under_way = warpgroup_mma(weights, value_shared.index(stage), acc, is_async=True)
            acc = warpgroup_mma_wait(0, deps=[acc_under_way])
            keep(weights)
            mbarrier.arrive(value_empty.index(stage), count=1)
            stage, phase = next_stage, next_phase
            at = start + row + 64 * ME
            count = length - row - 64 * ME
            lse = m_i + gl.log2(l_i)
            rows = gl.arange(0, 64, layout=row_layout)
            lse_at = lse_pointer + head.to(gl.int64) * num_rows + at
            gl.store(lse_at + rows, lse, mask=rows < count)
            total = gl.convert_layout(l_i, acc_row_layout, assert_trivial=True)
            output = (acc * gl.expand_dims(1.0 / total, 1)).to(kind)
            output = gl.convert_layout(output, store_layout)
            rows = gl.arange(0, 64, layout=gl.SliceLayout(1, store_layout))
            features = gl.arange(0, HEAD_DIM, layout=gl.SliceLayout(0, store_layout))
            places = gl.expand_dims(rows, 1) * (NUM_HEADS * HEAD_DIM) + gl.expand_dims(features, 0)
            output_at = output_pointer + at.to(gl.int64) * (NUM_HEADS * HEAD_DIM) + head * HEAD_DIM
            gl.store(output_at + places, output, mask=gl.expand_dims(rows < count, 1))
        start, length, row = next_start, next_length, next_row


# Batches of other sizes are the same kernel.
@gluon.jit(do_not_specialize=["num_tiles", "num_rows"])
def _attention_forward_gluon_kernel(
    query_rows,  # TMA descriptor of [T, H D] in blocks [64, D]
    key_rows,  # of [T, K D] in blocks [BLOCK_KEYS, D], K heads dividing H
    value_rows,  # of [T, K D] in blocks [BLOCK_KEYS, D]
    output_pointer,  # [T, H, D] contiguous
    lse_pointer,  # float32 [H, T], of powers of two
    cu_seqlens_pointer,  # int32 [B + 1]
    tiles_pointer,  # int32 [tiles, 2]: sequence, block of 64 CONSUMERS rows
    num_tiles,
    num_rows,
    factor,  # the scale, times log2 e
    NUM_HEADS: gl.constexpr,
    GROUP: gl.constexpr,
    HEAD_DIM: gl.constexpr,
    BLOCK_KEYS: gl.constexpr,
    STAGES: gl.constexpr,
    CONSUMERS: gl.constexpr,
    TURNS: gl.constexpr,
    REGISTERS: gl.constexpr,
):
    kind: gl.constexpr = query_rows.dtype
    shared = (
        gl.allocate_shared_memory(kind, [CONSUMERS, 64, HEAD_DIM], query_rows.layout),
        gl.allocate_shared_memory(kind, [STAGES, BLOCK_KEYS, HEAD_DIM], key_rows.layout),
        gl.allocate_shared_memory(kind, [STAGES, BLOCK_KEYS, HEAD_DIM], value_rows.layout),
    )
    layout: gl.constexpr = mbarrier.MBarrierLayout()
    ready = (
        gl.allocate_shared_memory(gl.int64, [1], layout),
        gl.allocate_shared_memory(gl.int64, [STAGES, 1], layout),
        gl.allocate_shared_memory(gl.int64, [STAGES, 1], layout),
    )
    empty = (
        gl.allocate_shared_memory(gl.int64, [1], layout),
        gl.allocate_shared_memory(gl.int64, [STAGES, 1], layout),
        gl.allocate_shared_memory(gl.int64, [STAGES, 1], layout),
    )
    tail_ready = gl.allocate_shared_memory(gl.int64, [1], layout)
    turn = gl.allocate_shared_memory(gl.int64, [2, 1], layout)
    mbarrier.init(ready[0], count=1)
    mbarrier.init(empty[0], count=CONSUMERS)
    for stage in gl.static_range(STAGES):
        mbarrier.init(ready[1].index(stage), count=1)
        mbarrier.init(ready[2].index(stage), count=1)
        mbarrier.init(empty[1].index(stage), count=CONSUMERS)
        mbarrier.init(empty[2].index(stage), count=CONSUMERS)
    mbarrier.init(tail_ready, count=1)
    for consumer in gl.static_range(2):
        mbarrier.init(turn.index(consumer), count=1)
    # TMA sees the barriers.
    fence_async_shared()
    if TURNS:
        mbarrier.arrive(turn.index(0), count=1)
    lists = (tiles_pointer, cu_seqlens_pointer)
    results = (output_pointer, lse_pointer)
    descriptors = (query_rows, key_rows, value_rows)
    if CONSUMERS == 1:
        gl.warp_specialize(
            [
                (_produce, (
                    descriptors, shared, ready, empty, tail_ready, lists, num_tiles,
                    NUM_HEADS, GROUP, HEAD_DIM, BLOCK_KEYS, STAGES, CONSUMERS,
                )),
                (_consume, (
                    shared, ready, empty, turn, results, lists, num_tiles, num_rows, factor,
                    0, NUM_HEADS, HEAD_DIM, BLOCK_KEYS, STAGES, CONSUMERS, TURNS,
                )),
            ],
            [4],
            [REGISTERS],
        )  # fmt: skip
    else:
        gl.warp_specialize(
            [
                (_produce, (
                    descriptors, shared, ready, empty, tail_ready, lists, num_tiles,
                    NUM_HEADS, GROUP, HEAD_DIM, BLOCK_KEYS, STAGES, CONSUMERS,
                )),
                (_consume, (
                    shared, ready, empty, turn, results, lists, num_tiles, num_rows, factor,
                    0, NUM_HEADS, HEAD_DIM, BLOCK_KEYS, STAGES, CONSUMERS, TURNS,
                )),
                (_consume, (
                    shared, ready, empty, turn, results, lists, num_tiles, num_rows, factor,
                    1, NUM_HEADS, HEAD_DIM, BLOCK_KEYS, STAGES, CONSUMERS, TURNS,
                )),
            ],
            [4, 4],
            [REGISTERS, REGISTERS],
        )  # fmt: skip
