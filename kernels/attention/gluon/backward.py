"""Attention's gradients over packed sequences for Hopper, by five products, in Gluon.

How it works: a program owns a sequence and a key head. It goes through blocks of 128 keys, for each
through all blocks of 64 queries, and computes the scores once, where one kernel for ``dQ`` and
another for ``dK, dV`` compute them twice: five products instead of seven. Two consumers own 64 keys
each and keep ``dK`` and ``dV`` in registers. Of the transposed scores, ``K Q^T`` and ``V dO^T``,
``P^T`` and ``dS^T`` are left operands of the next products where they are.

``dQ`` is a sum over keys, so both consumers store their half of ``dS^T`` in shared memory. One of
them, by turns of the blocks of queries, multiplies it with the 128 keys and adds that to the sum in
float32, which no other program and no other thread touches: no atomics, one order, the same bits
every time. The sum is in shared memory where the sequence is short enough, else in scratch memory.

Rows of the last, ragged block are the neighbour's, perhaps NaN: the producer clears them where they
are summed over. Cleared queries have no gradient, and ``dS`` of keys beyond the last is masked.
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
def _load_pair(
    rows,
    at,
    columns,
    into,
    ready,
    tail,
    inside,
    BLOCK_ROWS: gl.constexpr,
    HEAD_DIM: gl.constexpr,
    BOTH: gl.constexpr,
):
    """Load a block of two tensors; return the next phase of ``tail``, a ragged block's barrier.

    ``inside``: how many of the block's rows exist. The others are cleared in the first tensor and,
    if BOTH, in the second.
    """
    tail_ready, tail_phase = tail
    first_rows, second_rows = rows
    first, second = into
    first_column, second_column = columns
    num_bytes: gl.constexpr = first_rows.block_type.nbytes + second_rows.block_type.nbytes
    if inside < BLOCK_ROWS:
        mbarrier.expect(tail_ready, num_bytes)
        async_load(first_rows, [at, first_column], tail_ready, first)
        async_load(second_rows, [at, second_column], tail_ready, second)
        mbarrier.wait(tail_ready, tail_phase)
        tail_phase ^= 1
        clear_rows(first, inside, BLOCK_ROWS, HEAD_DIM)
        if BOTH:
            clear_rows(second, inside, BLOCK_ROWS, HEAD_DIM)
        # Products read shared memory by another way than stores write it.
        fence_async_shared()
        mbarrier.arrive(ready, count=1)
    else:
        mbarrier.expect(ready, num_bytes)
        async_load(first_rows, [at, first_column], ready, first)
        async_load(second_rows, [at, second_column], ready, second)
    return tail_phase


@gluon.jit
def _produce(
    descriptors,
    shared,
    barriers,
    start,
    length,
    key_head,
    GROUP: gl.constexpr,
    HEAD_DIM: gl.constexpr,
    STAGES: gl.constexpr,
):
    """Load each block of keys and values, and for each all blocks of queries and gradients."""
    query_rows, grad_rows, key_rows, value_rows = descriptors
    query_shared, grad_shared, key_shared, value_shared = shared
    keys_ready, keys_empty, rows_ready, rows_empty, tail_ready = barriers
    keys_phase, tail_phase = 1, 0
    stage, phase = 0, 1
    key_column = key_head * HEAD_DIM
    for key_at in range(0, length, 128):
        mbarrier.wait(keys_empty, keys_phase)
        keys_phase ^= 1
        tail_phase = _load_pair(
            (key_rows, value_rows), start + key_at, (key_column, key_column),
            (key_shared.index(0), value_shared.index(0)), keys_ready, (tail_ready, tail_phase),
            length - key_at, 128, HEAD_DIM, False,
        )  # fmt: skip
        for group in range(GROUP):
            column = (key_head * GROUP + group) * HEAD_DIM
            for row_at in range(0, length, 64):
                mbarrier.wait(rows_empty.index(stage), phase)
                tail_phase = _load_pair(
                    (query_rows, grad_rows), start + row_at, (column, column),
                    (query_shared.index(stage), grad_shared.index(stage)),
                    rows_ready.index(stage), (tail_ready, tail_phase), length - row_at, 64,
                    HEAD_DIM, True,
                )  # fmt: skip
                stage, phase = next_place(stage, phase, STAGES)


@gluon.jit
def _places(pointer, row, column, rows, features, WIDTH: gl.constexpr):
    """Return pointers to a block of a tensor [T, WIDTH], from ``row`` and ``column`` on."""
    # Features are added last: they differ by constants, which the instructions hold.
    return pointer + row.to(gl.int64) * WIDTH + column + gl.expand_dims(rows * WIDTH, 1) + features


@gluon.jit
def _differentiate(
    shared,
    barriers,
    sums,
    pointers,
    start,
    length,
    key_head,
    num_rows,
    factor,
    scale,
    ME: gl.constexpr,
    GROUP: gl.constexpr,
    NUM_HEADS: gl.constexpr,
    HEAD_DIM: gl.constexpr,
    STAGES: gl.constexpr,
    SUM_SHARED: gl.constexpr,
    JOINED: gl.constexpr,
):
    """Compute the gradients of 64 keys of each key block, and of every other block of queries."""
    scores_layout: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, 64, 16])
    acc_layout: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, HEAD_DIM, 16])
    left_layout: gl.constexpr = gl.DotOperandLayout(0, acc_layout, 2)
    WIDTH: gl.constexpr = NUM_HEADS * HEAD_DIM
    KEY_WIDTH: gl.constexpr = NUM_HEADS // GROUP * HEAD_DIM
    GRAD_WIDTH: gl.constexpr = WIDTH + 2 * KEY_WIDTH if JOINED else WIDTH
    GRAD_KEY_WIDTH: gl.constexpr = GRAD_WIDTH if JOINED else KEY_WIDTH
    query_shared, grad_shared, key_shared, value_shared = shared
    keys_ready, keys_empty, rows_ready, rows_empty, ds_ready = barriers
    ds_shared, sum_shared, sum_pointer = sums
    lse_pointer, delta_pointer, grad_query_pointer, grad_key_pointer, grad_value_pointer = pointers
    kind: gl.constexpr = key_shared.dtype
    all_keys = key_shared.index(0)
    key = all_keys.slice(64 * ME, 64)
    value = value_shared.index(0).slice(64 * ME, 64)
    zeros = gl.zeros([64, 64], gl.float32, scores_layout)
    acc_zeros = gl.zeros([64, HEAD_DIM], gl.float32, acc_layout)
    rows = gl.arange(0, 64, layout=gl.SliceLayout(0, scores_layout))
    keys = 64 * ME + gl.arange(0, 64, layout=gl.SliceLayout(1, scores_layout))
    # Of a block of 64 rows in memory, by accumulator.
    own = gl.arange(0, 64, layout=gl.SliceLayout(1, acc_layout))
    features = gl.expand_dims(gl.arange(0, HEAD_DIM, layout=gl.SliceLayout(0, acc_layout)), 0)
    num_blocks = (length + 63) // 64
    keys_phase, ds_phase = 0, 0
    stage, phase = 0, 0
    for key_at in range(0, length, 128):
        mbarrier.wait(keys_ready, keys_phase)
        keys_phase ^= 1
        grad_key = acc_zeros
        grad_value = acc_zeros
        for group in range(GROUP):
            head = key_head * GROUP + group
            statistics_at = head.to(gl.int64) * num_rows + start
            for row_at in range(0, length, 64):
                mbarrier.wait(rows_ready.index(stage), phase)
                query, grad = query_shared.index(stage), grad_shared.index(stage)
                scores = warpgroup_mma(
                    key, query.permute((1, 0)), zeros, use_acc=False, is_async=True
                )
                dp = warpgroup_mma(value, grad.permute((1, 0)), zeros, use_acc=False, is_async=True)
                at = statistics_at + row_at
                inside = row_at + rows < length
                lse = gl.load(lse_pointer + at + rows, mask=inside, other=0.0)
                scores, dp = warpgroup_mma_wait(1, deps=[scores, dp])
                p = gl.exp2(gl.fma(scores, factor, -gl.expand_dims(lse, 0)))
                weights = gl.convert_layout(p.to(kind), left_layout, assert_trivial=True)
                # Beside lse, it would make Triton 3.6 spill 8 bytes.
                delta = gl.load(delta_pointer + at + rows, mask=inside, other=0.0)
                grad_value = warpgroup_mma(weights, grad, grad_value, is_async=True)
                dp, grad_value = warpgroup_mma_wait(1, deps=[dp, grad_value])
                ds = p * (dp - gl.expand_dims(delta, 0))
                ds = gl.where(gl.expand_dims(key_at + keys, 1) < length, ds, 0.0).to(kind)
                left = gl.convert_layout(ds, left_layout, assert_trivial=True)
                grad_key = warpgroup_mma(left, query, grad_key, is_async=True)
                # Whoever adds to a row of dQ once does so always.
                owner = (group * num_blocks + row_at // 64) & 1
                # They alternate. Whoever stores here has waited in the block in between for the
                # other one, which has then read what lay here before.
                ds_shared.index(owner).slice(64 * ME, 64).store(ds)
                fence_async_shared()
                mbarrier.arrive(ds_ready.index(owner), count=1)
                grad_value, grad_key = warpgroup_mma_wait(0, deps=[grad_value, grad_key])
                keep(weights)
                keep(left)
                mbarrier.arrive(rows_empty.index(stage), count=1)
                if owner == ME:
                    mbarrier.wait(ds_ready.index(ME), ds_phase)
                    ds_phase ^= 1
                    ds_rows = ds_shared.index(ME).permute((1, 0))
                    added = warpgroup_mma(
                        ds_rows, all_keys, acc_zeros, use_acc=False, is_async=True
                    )
                    added = warpgroup_mma_wait(0, deps=[added])
                    row, column = start + row_at, head * HEAD_DIM
                    exists = gl.expand_dims(row_at + own < length, 1)
                    if SUM_SHARED:
                        kept = sum_shared.index(row_at // 64)
                        if key_at > 0:
                            added += kept.load(acc_layout)
                        if key_at + 128 < length:
                            kept.store(added)
                    else:
                        kept = _places(sum_pointer, row, column, own, features, WIDTH)
                        if key_at > 0:
                            added += gl.load(kept, mask=exists)
                        if key_at + 128 < length:
                            gl.store(kept, added, mask=exists)
                    if key_at + 128 >= length:
                        to = _places(grad_query_pointer, row, column, own, features, GRAD_WIDTH)
                        gl.store(to, (added * scale).to(kind), mask=exists)
                stage, phase = next_place(stage, phase, STAGES)
        mbarrier.arrive(keys_empty, count=1)
        first = key_at + 64 * ME
        row, column = start + first, key_head * HEAD_DIM
        exists = gl.expand_dims(first + own < length, 1)
        to = _places(grad_key_pointer, row, column, own, features, GRAD_KEY_WIDTH)
        gl.store(to, (grad_key * scale).to(kind), mask=exists)
        to = _places(grad_value_pointer, row, column, own, features, GRAD_KEY_WIDTH)
        gl.store(to, grad_value.to(kind), mask=exists)


# Batches of other sizes are the same kernel.
@gluon.jit(do_not_specialize=["num_rows"])
def _attention_backward_gluon_kernel(
    query_rows,  # TMA descriptor of [T, H D] in blocks [64, D]
    grad_rows,  # of the output's gradient, the same
    key_rows,  # of [T, K D] in blocks [128, D], K heads dividing H
    value_rows,  # of [T, K D] in blocks [128, D]
    lse_pointer,  # float32 [H, T], of powers of two
    delta_pointer,  # float32 [H, T], rowsum(grad * output)
    sum_pointer,  # float32 [T, H, D], or null where the sum is in shared memory
    grad_query_pointer,  # [T, H, D] contiguous, or the first heads of [T, H + 2 K, D]
    grad_key_pointer,  # [T, K, D] likewise
    grad_value_pointer,  # [T, K, D] likewise
    cu_seqlens_pointer,  # int32 [B + 1]
    tiles_pointer,  # int32 [tiles, 2]: sequence, 0
    num_rows,
    factor,  # the scale, times log2 e
    scale,
    NUM_HEADS: gl.constexpr,
    GROUP: gl.constexpr,
    HEAD_DIM: gl.constexpr,
    STAGES: gl.constexpr,
    SUM_BLOCKS: gl.constexpr,  # of 64 rows, in shared memory; 0: none
    REGISTERS: gl.constexpr,
    JOINED: gl.constexpr,
):
    NUM_KEY_HEADS: gl.constexpr = NUM_HEADS // GROUP
    program = gl.program_id(0)
    sequence = gl.load(tiles_pointer + 2 * (program // NUM_KEY_HEADS))
    key_head = program % NUM_KEY_HEADS
    start = gl.load(cu_seqlens_pointer + sequence)
    length = gl.load(cu_seqlens_pointer + sequence + 1) - start
    kind: gl.constexpr = query_rows.dtype
    shared = (
        gl.allocate_shared_memory(kind, [STAGES, 64, HEAD_DIM], query_rows.layout),
        gl.allocate_shared_memory(kind, [STAGES, 64, HEAD_DIM], grad_rows.layout),
        gl.allocate_shared_memory(kind, [1, 128, HEAD_DIM], key_rows.layout),
        gl.allocate_shared_memory(kind, [1, 128, HEAD_DIM], value_rows.layout),
    )
    ds_layout: gl.constexpr = gl.NVMMASharedLayout.get_default_for([128, 64], kind)
    ds_shared = gl.allocate_shared_memory(kind, [2, 128, 64], ds_layout)
    # Eight rows of a fragment are in different banks.
    sum_layout: gl.constexpr = gl.SwizzledSharedLayout(8, 1, 8, [1, 0])
    sum_shape: gl.constexpr = [SUM_BLOCKS if SUM_BLOCKS else 1, 64, HEAD_DIM if SUM_BLOCKS else 8]
    sum_shared = gl.allocate_shared_memory(gl.float32, sum_shape, sum_layout)
    layout: gl.constexpr = mbarrier.MBarrierLayout()
    keys_ready = gl.allocate_shared_memory(gl.int64, [1], layout)
    keys_empty = gl.allocate_shared_memory(gl.int64, [1], layout)
    rows_ready = gl.allocate_shared_memory(gl.int64, [STAGES, 1], layout)
    rows_empty = gl.allocate_shared_memory(gl.int64, [STAGES, 1], layout)
    ds_ready = gl.allocate_shared_memory(gl.int64, [2, 1], layout)
    tail_ready = gl.allocate_shared_memory(gl.int64, [1], layout)
    mbarrier.init(keys_ready, count=1)
    mbarrier.init(keys_empty, count=2)
    for stage in gl.static_range(STAGES):
        mbarrier.init(rows_ready.index(stage), count=1)
        mbarrier.init(rows_empty.index(stage), count=2)
    for consumer in gl.static_range(2):
        mbarrier.init(ds_ready.index(consumer), count=2)
    mbarrier.init(tail_ready, count=1)
    # TMA sees the barriers.
    fence_async_shared()
    descriptors = (query_rows, grad_rows, key_rows, value_rows)
    loading = (keys_ready, keys_empty, rows_ready, rows_empty, tail_ready)
    reading = (keys_ready, keys_empty, rows_ready, rows_empty, ds_ready)
    sums = (ds_shared, sum_shared, sum_pointer)
    pointers = (
        lse_pointer, delta_pointer, grad_query_pointer, grad_key_pointer, grad_value_pointer,
    )  # fmt: skip
    gl.warp_specialize(
        [
            (_produce, (
                descriptors, shared, loading, start, length, key_head, GROUP, HEAD_DIM, STAGES,
            )),
            (_differentiate, (
                shared, reading, sums, pointers, start, length, key_head, num_rows, factor, scale,
                0, GROUP, NUM_HEADS, HEAD_DIM, STAGES, SUM_BLOCKS > 0, JOINED,
            )),
            (_differentiate, (
                shared, reading, sums, pointers, start, length, key_head, num_rows, factor, scale,
                1, GROUP, NUM_HEADS, HEAD_DIM, STAGES, SUM_BLOCKS > 0, JOINED,
            )),
        ],
        [4, 4],
        [REGISTERS, REGISTERS],
    )  # fmt: skip
