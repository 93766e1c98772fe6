"""The gradients of disentangled attention's products of content and position.

How it works: the kernels of attention keep the gradients of scores, by query for c2p and by key for
p2c (``positions.py``). Several distances share a position vector, which has a number. A kernel here
adds, for one row, the gradients of the distances with the same number: it visits a list of
distances for each number, and a row's distances beyond the reach once. Every sum has one owner and
one order.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import torch
import triton
import triton.language as tl
from torch import Tensor

from ..common.launch import on_device
from .positions import keys_of_heads, position_constants
from .tile import places_of, program_tile, span

if TYPE_CHECKING:
    from .blocks import Blocks
    from .differentiable import Call

BLOCK_NUMBERS = 32
NUM_WARPS = 4


class ScoreGradients(NamedTuple):
    """The score gradients that the backward kernels keep, in the query's dtype.

    ``by_query`` [M, H, longest], by the key's position; ``by_key`` [T, H, longest], by the query's.
    """

    by_query: Tensor | None
    by_key: Tensor | None


def score_gradients(call: Call, blocks: Blocks) -> ScoreGradients:
    """Allocate :class:`ScoreGradients`, with zeros if the kernels leave entries unwritten."""
    if call.entries_R is None:
        return ScoreGradients(None, None)
    # Queries may lie beyond the last key: rows that attend and are not seen.
    longest = max(call.longest)
    if not longest:
        # A compiled graph does not know the lengths.
        lengths = [x.diff() for x in (blocks.cu_seqlens, blocks.cu_queries) if x.shape[0]]
        longest = int(torch.cat(lengths).max())
    partial = call.window is not None or call.causal or blocks.places.shape[0] > 0
    allocate = torch.zeros if partial else torch.empty

    def rows(num_rows: int, vectors: Tensor | None) -> Tensor | None:
        query = call.query_MHD
        shape = (num_rows, query.shape[1], longest)
        return None if vectors is None else allocate(shape, dtype=query.dtype, device=query.device)

    return ScoreGradients(
        rows(len(call.query_MHD), call.position_key_NHD),
        rows(len(call.key_TKD), call.position_query_NHD),
    )


@triton.jit
def _sum_by_number_kernel(
    ds_pointer,  # [rows, H, longest] gradients of scores
    grad_pointer,  # [rows, H, N]
    cu_seqlens_pointer,  # int32 [B + 1]
    tiles_pointer,  # int32 [tiles, 2]: sequence, block of rows
    cu_queries_pointer,  # int32 [B + 1], read if SUBSET
    query_places_pointer,  # int32 [M] places of the rows in their sequence, or empty
    entries_pointer,  # int32 [2 r + 1] number of each distance
    distances_pointer,  # int32 [2 r + 1] distances, sorted by their numbers
    starts_pointer,  # int32 [N + 1] first distance of each number in that order
    longest,
    scale,
    NUM_HEADS: tl.constexpr,
    ENTRIES_REACH: tl.constexpr,
    NUM_ENTRIES: tl.constexpr,
    SIGN: tl.constexpr,  # distances are other - row: 1, or row - other: -1
    SUBSET: tl.constexpr,
    WHOLE: tl.constexpr,  # the others may lie beyond the sequence, and are 0 where there is none
    BLOCK_ROWS: tl.constexpr,
    BLOCK_NUMBERS: tl.constexpr,
):
    _tile, head, sequence, block = program_tile(tiles_pointer, NUM_HEADS)
    start, length = span(cu_seqlens_pointer, sequence)
    first, count = start, length
    if SUBSET:
        first, count = span(cu_queries_pointer, sequence)
    entries = block * BLOCK_ROWS + tl.arange(0, BLOCK_ROWS)
    rows = places_of(query_places_pointer, first, entries, count, length, SUBSET)
    exist = (entries < count)[:, None]
    bound = length
    if WHOLE:
        bound = longest
    own = ((first + entries)[:, None] * NUM_HEADS + head).to(tl.int64)
    # Beyond the reach, on either side: all have the number of the last distance within.
    before = tl.zeros([BLOCK_ROWS], dtype=tl.float32)
    after = tl.zeros([BLOCK_ROWS], dtype=tl.float32)
    if longest > ENTRIES_REACH + 1:
        for at in tl.range(0, bound, BLOCK_NUMBERS):
            others = at + tl.arange(0, BLOCK_NUMBERS)
            distance = SIGN * (others[None, :] - rows[:, None])
            there = exist & (others < bound)[None, :]
            far = there & (tl.abs(distance) > ENTRIES_REACH)
            ds = tl.load(ds_pointer + own * longest + others[None, :], mask=far, other=0.0)
            ds = ds.to(tl.float32)
            before += tl.sum(tl.where(distance < 0, ds, 0.0), axis=1)
            after += tl.sum(tl.where(distance > 0, ds, 0.0), axis=1)
    lowest = tl.load(entries_pointer)
    highest = tl.load(entries_pointer + 2 * ENTRIES_REACH)
    for at in tl.range(0, NUM_ENTRIES, BLOCK_NUMBERS):
        numbers = at + tl.arange(0, BLOCK_NUMBERS)
        here = numbers < NUM_ENTRIES
        begin = tl.load(starts_pointer + numbers, mask=here, other=0)
        end = tl.load(starts_pointer + numbers + 1, mask=here, other=0)
        sums = tl.where((numbers == lowest)[None, :], before[:, None], 0.0)
        sums += tl.where((numbers == highest)[None, :], after[:, None], 0.0)
        for step in tl.range(0, tl.max(end - begin, axis=0)):
            listed = begin + step < end
            distance = tl.load(distances_pointer + begin + step, mask=listed, other=0)
            others = rows[:, None] + SIGN * distance[None, :]
            there = exist & listed[None, :] & (others >= 0) & (others < bound)
            ds = tl.load(ds_pointer + own * longest + others, mask=there, other=0.0)
            sums += ds.to(tl.float32)
        kind = grad_pointer.dtype.element_ty
        inside = exist & here[None, :]
        tl.store(grad_pointer + own * NUM_ENTRIES + numbers, (sums * scale).to(kind), mask=inside)


class PositionGradients(NamedTuple):
    """What position vectors add to the gradients of query and key, and their own gradients."""

    query_MHD: Tensor | None
    key_TKD: Tensor | None
    position_key_NHD: Tensor
    position_query_NHD: Tensor


def position_gradients(
    call: Call, blocks: Blocks, kept: ScoreGradients, query_block: int, key_block: int
) -> PositionGradients:
    """Return the gradients of disentangled attention's terms from those of the scores.

    ``query_block``, ``key_block``: rows of a block in ``blocks.query_tiles`` and ``key_tiles``.
    Without disentangled attention all are None or empty.
    """
    query, key = call.query_MHD, keys_of_heads(call)
    grad_query, grad_key = None, None
    grad_vectors = [query.new_empty(0), query.new_empty(0)]
    if kept.by_query is not None and call.position_key_NHD is not None:
        grad_MHN = _sum_by_number(call, blocks, kept.by_query, blocks.query_tiles, query_block, 1)
        grad_query, grad_vectors[0] = _of_products(grad_MHN, query, call.position_key_NHD)
    if kept.by_key is not None and call.position_query_NHD is not None:
        grad_THN = _sum_by_number(call, blocks, kept.by_key, blocks.key_tiles, key_block, -1)
        grad_key, grad_vectors[1] = _of_products(grad_THN, key, call.position_query_NHD)
        grad_key = grad_key.unflatten(1, (-1, call.group)).sum(2)
    return PositionGradients(grad_query, grad_key, *grad_vectors)


def _of_products(grad_MHN: Tensor, rows_MHD: Tensor, vectors_NHD: Tensor) -> tuple[Tensor, Tensor]:
    """Return the gradients of rows and vectors from that of the products ``rows @ vectors``."""
    grad_HMN = grad_MHN.transpose(0, 1)
    of_rows = torch.bmm(grad_HMN, vectors_NHD.transpose(0, 1)).transpose(0, 1)
    of_vectors = torch.bmm(grad_HMN.mT, rows_MHD.transpose(0, 1)).transpose(0, 1)
    return of_rows, of_vectors.contiguous()


@on_device
def _sum_by_number(
    call: Call, blocks: Blocks, kept: Tensor, tiles: Tensor, block: int, sign: int
) -> Tensor:
    """Sum score gradients ``kept`` over the distances that share a position vector: [rows, H, N].

    ``sign``: 1 where rows are queries, -1 where they are keys.
    """
    entries = call.entries_R
    assert entries is not None
    constants = position_constants(call)
    num_entries = constants["NUM_ENTRIES"]
    ordered, order = entries.sort(stable=True)
    numbers = torch.arange(num_entries + 1, device=entries.device)
    grad = kept.new_empty(*kept.shape[:2], num_entries)
    _sum_by_number_kernel[(len(tiles) * kept.shape[1],)](
        kept,
        grad,
        blocks.cu_seqlens,
        tiles,
        blocks.cu_queries,
        blocks.places,
        entries.int(),
        (order - constants["ENTRIES_REACH"]).int(),
        torch.searchsorted(ordered, numbers).int(),
        kept.shape[2],
        call.scale,
        NUM_HEADS=kept.shape[1],
        ENTRIES_REACH=constants["ENTRIES_REACH"],
        NUM_ENTRIES=num_entries,
        SIGN=sign,
        SUBSET=sign > 0 and blocks.places.shape[0] > 0,
        WHOLE=sign < 0 and blocks.places.shape[0] > 0,
        BLOCK_ROWS=block,
        BLOCK_NUMBERS=BLOCK_NUMBERS,
        num_warps=NUM_WARPS,
    )
    return grad
