"""Attention and statistics of its weights by PyTorch, a tile of query rows at a time.

How it works: a tile has up to ``TILE`` weights: those of several sequences of one length, or of
some queries of a single one. Two buffers of a tile's size are reused: memory beyond the results
does not grow with the number of sequences, and no new page is touched. From a tile's scores come
their maxima and the exponentials; one GEMM multiplies these with the values, another with features
of the keys, which gives nearly all other sums over keys. The distances to keys on one side of the
tile are linear in the keys' positions, so that their sums come from that GEMM too.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import torch

from encoder_engine.ops.aten.attention_groups import (
    Group,
    add_mask,
    mask_of,
    position_scores,
    taken,
)
from encoder_engine.ops.aten.linear import fill_blocks

if TYPE_CHECKING:
    from torch import Tensor

    from encoder_engine.kernels.attention.terms import Terms
    from encoder_engine.packing import Sequences

# Weights of a tile: 2 MiB of float32. Smaller ones leave more time in the calls of small tensors.
TILE = 2**19
# Distances whose weight is given apart: the token before, the token itself, the token after.
OFFSETS = (-1, 0, 1)


class _Sums(NamedTuple):
    """Sums over keys of the unnormalised attention weights of n sequences of length L.

    ``mixed``: [n, H, L, D], weighted sums of the values.
    ``best``: [n, H, L], the position of the highest score's key.
    ``surprise``: [n, H, L], the sum of weight times shifted score.
    ``distance``: [n, H, L], without the distances that ``by_feature`` sums.
    ``near``: [n, H, L, 3], the weights of the token before the query, of its own and of the next.
    ``by_feature``: [n, H, L, F], weighted sums of the keys' features.
    """

    mixed: Tensor
    best: Tensor
    surprise: Tensor
    distance: Tensor
    near: Tensor
    by_feature: Tensor


def attention_statistics(
    query_THD: Tensor,
    key_TKD: Tensor,
    value_TKD: Tensor,
    sequences: Sequences,
    marks_TC: Tensor,
    terms: Terms,
) -> tuple[Tensor, ...]:
    """Compute ``ops.attention_statistics`` by PyTorch's operators."""
    num_tokens, num_heads = query_THD.shape[:2]
    wide = torch.promote_types(query_THD.dtype, torch.float32)
    found = query_THD.new_zeros(num_tokens, num_heads, 6 + marks_TC.shape[1], dtype=wide)
    output_THD = torch.empty(query_THD.shape, dtype=query_THD.dtype, device=query_THD.device)
    offsets = torch.zeros(num_tokens, num_heads, dtype=torch.int64, device=query_THD.device)
    rows_T = torch.arange(num_tokens, device=query_THD.device)
    longest = int(sequences.lengths.max(initial=0))
    buffers = query_THD.new_empty(2, max(TILE, num_heads * longest), dtype=wide)
    with torch.no_grad():
        for length, members, rows in sequences.length_groups:
            rows_nL = rows_T[rows].view(len(members), length)
            size = max(1, TILE // (num_heads * length * length))
            for first in range(0, len(members), size):
                keys = rows_nL[first : first + size]
                # A view where the rows are adjacent: nothing is copied.
                flat: Tensor | slice = keys.reshape(-1)
                if len(keys) == 1:
                    start = sequences.offsets[members[first]]
                    flat = slice(int(start), int(start) + length)
                operands = query_THD, key_TKD, value_TKD
                sums = _sum_tiles(*operands, keys, flat, marks_TC, terms, buffers)
                mixed = sums.mixed / sums.by_feature[..., :1]
                output_THD[flat] = mixed.transpose(1, 2).flatten(0, 1).to(output_THD.dtype)
                found[flat] = _values(sums).transpose(1, 2).flatten(0, 1)
                places = torch.arange(length, device=query_THD.device)
                offsets[flat] = (sums.best - places).transpose(1, 2).flatten(0, 1)
    return (
        output_THD,
        found[..., 0],
        offsets,
        *(found[..., n] for n in (1, 2)),
        found[..., 3:6],
        found[..., 6:],
    )


def _sum_tiles(
    query_THD: Tensor,
    key_TKD: Tensor,
    value_TKD: Tensor,
    keys: Tensor,
    flat: Tensor | slice,
    marks_TC: Tensor,
    terms: Terms,
    buffers: Tensor,
) -> _Sums:
    """Return the :class:`_Sums` of some sequences of one length, computed tile by tile.

    ``keys`` [n, L]: the packed rows of the sequences; ``flat``: the same, in one dimension.
    """
    (num_sequences, length), num_heads = keys.shape, query_THD.shape[1]
    step = min(length, max(1, buffers.shape[1] // (num_sequences * num_heads * length)))
    query_nHLD = taken(query_THD, flat, length)
    key_nHLD, value_nHLD = (
        taken(x, flat, length).repeat_interleave(num_heads // x.shape[1], 1)
        for x in (key_TKD, value_TKD)
    )
    value_nHLD = value_nHLD.to(buffers.dtype).contiguous()
    scaled_nHLD, filled_nHLD = fill_blocks(query_nHLD * terms.scale, key_nHLD)
    turned_nHDL = filled_nHLD.mT.contiguous()
    shape = num_sequences, num_heads, length
    marks_nLC = marks_TC[flat].view(num_sequences, length, -1).to(buffers)
    features_nLF = torch.cat([marks_nLC.new_ones(num_sequences, length, 5), marks_nLC], 2)
    new = buffers.new_empty
    sums = _Sums(
        new(value_nHLD.shape),
        keys.new_empty(shape),
        new(shape),
        new(shape),
        buffers.new_zeros(*shape, len(OFFSETS)),
        new(*shape, features_nLF.shape[2]),
    )
    for start in range(0, length, step):
        stop = min(start + step, length)
        count = num_sequences * num_heads * (stop - start) * length
        scores, weights = buffers[:, :count].view(2, *shape[:2], stop - start, length)
        if terms.names() or scores.dtype != query_THD.dtype:
            group = _group(keys, start, stop)
            part = query_nHLD[:, :, start:stop]
            given = torch.matmul(scaled_nHLD[:, :, start:stop], turned_nHDL)
            if terms.disentangled is not None:
                given = given + position_scores(group, terms, part, key_nHLD)
            scores.copy_(add_mask(given, mask_of(group, terms, part)))
        else:
            torch.matmul(scaled_nHLD[:, :, start:stop], turned_nHDL, out=scores)
        _set_sides(features_nLF, start, stop)
        _sum_tile(scores, weights, features_nLF, start, sums, masked=bool(terms.names()))
        sums.mixed[:, :, start:stop] = weights @ value_nHLD
    return sums


def _group(keys: Tensor, start: int, stop: int) -> Group:
    """Return the :class:`Group` of the sequences ``keys``, [n, L], with some of their queries.

    The queries are those at the positions ``start`` to ``stop - 1``.
    """
    places = torch.arange(start, stop, device=keys.device)
    queries = keys[:, start:stop]
    return Group(
        keys.shape[1],
        keys.reshape(-1),
        stop - start,
        queries.reshape(-1),
        places.expand(len(keys), -1),
    )


def _sum_tile(
    scores: Tensor, weights: Tensor, features_nLF: Tensor, start: int, sums: _Sums, *, masked: bool
) -> None:
    """Write a tile's sums into ``sums``, from its scores [n, H, Q, L], which are overwritten.

    ``start``: the tile's first query. ``weights``: a buffer of the scores' size. ``masked``: scores
    may be -inf.
    """
    stop = start + scores.shape[2]
    highest, sums.best[:, :, start:stop] = scores.max(3)
    torch.exp(scores.sub_(highest[..., None]), out=weights)
    for column, offset in enumerate(OFFSETS):
        near = weights.diagonal(start + offset, 2, 3)
        first = start + max(0, -(start + offset))
        sums.near[:, :, first : first + near.shape[2], column] = near
    by_feature = (weights.flatten(1, 2) @ features_nLF).view(*scores.shape[:3], -1)
    sums.by_feature[:, :, start:stop] = by_feature
    places = torch.arange(start, stop, device=scores.device)
    within_QQ = (places - places[:, None]).abs().to(weights)
    sums.distance[:, :, start:stop] = (weights[..., start:stop] * within_QQ).sum(3)
    # The part of the linear distances that depends on the query.
    before, after = by_feature[..., 2:5:2].unbind(3)
    sums.distance[:, :, start:stop] += before * (places - start) + after * (stop - 1 - places)
    if masked:
        # -inf times 0 would be NaN: a key that is not seen adds 0 to the entropy.
        scores.clamp_(min=-1e30)
    sums.surprise[:, :, start:stop] = scores.mul_(weights).sum(3)


def _set_sides(features_nLF: Tensor, start: int, stop: int) -> None:
    """Write the key features by which a tile of queries sums its distances to keys.

    Column 0 stays 1. Columns 1 and 2 are the distance to ``start`` and 1 for keys before the tile;
    3 and 4 the distance to ``stop - 1`` and 1 for keys after it; all are 0 elsewhere. None is
    negative: no sum cancels.
    """
    features_nLF[..., 1:5] = 0.0
    places = torch.arange(features_nLF.shape[1], device=features_nLF.device)
    features_nLF[..., :start, 1] = (start - places[:start]).to(features_nLF)
    features_nLF[..., :start, 2] = 1.0
    features_nLF[..., stop:, 3] = (places[stop:] - (stop - 1)).to(features_nLF)
    features_nLF[..., stop:, 4] = 1.0


def _values(sums: _Sums) -> Tensor:
    """Return the statistics, [n, H, L, 6 + C]: the sums divided by the sum of the weights."""
    total = sums.by_feature[..., 0]
    distance = sums.distance + sums.by_feature[..., 1] + sums.by_feature[..., 3]
    columns = [torch.ones_like(total), sums.surprise, distance]
    parts = [torch.stack(columns, 3), sums.near, sums.by_feature[..., 5:]]
    values = torch.cat(parts, 3) / total[..., None]
    # The entropy: log of the total, less the mean shifted score.
    values[..., 1] = total.log() - values[..., 1]
    return values
