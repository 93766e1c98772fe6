"""Statistics of attention weights by PyTorch, a tile of query rows at a time.

How it works: the sequences of one length are computed together, and as many of them, or as many
queries of one, as a tile of ``TILE`` weights holds. The tile is small enough to stay in the cache
through the passes over it, and memory beyond the results does not grow with the sequences.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from encoder_engine.ops.aten.attention_groups import (
    Group,
    add_mask,
    mask_of,
    position_scores,
    taken,
)

if TYPE_CHECKING:
    from torch import Tensor

    from encoder_engine.kernels.attention.terms import Terms
    from encoder_engine.packing import Sequences

# Weights of a tile: 2 MiB of float32.
TILE = 2**19


def attention_statistics(
    query_THD: Tensor, key_TKD: Tensor, sequences: Sequences, marks_TC: Tensor, terms: Terms
) -> tuple[Tensor, ...]:
    """Implement ``ops.attention_statistics``."""
    num_tokens, num_heads = query_THD.shape[:2]
    wide = torch.promote_types(query_THD.dtype, torch.float32)
    found = query_THD.new_zeros(num_tokens, num_heads, 6 + marks_TC.shape[1], dtype=wide)
    offsets = torch.zeros(num_tokens, num_heads, dtype=torch.int64, device=query_THD.device)
    rows_T = torch.arange(num_tokens, device=query_THD.device)
    with torch.no_grad():
        for length, members, rows in sequences.length_groups:
            rows_nL = rows_T[rows].view(len(members), length)
            size = max(1, TILE // (num_heads * length * length))
            step = length if size > 1 else max(1, TILE // (num_heads * length))
            for first in range(0, len(members), size):
                keys = rows_nL[first : first + size]
                key_nKLD = taken(key_TKD, keys.reshape(-1), length)
                marks_CnL = marks_TC[keys].to(wide).permute(2, 0, 1).contiguous()
                for start in range(0, length, step):
                    queries = keys[:, start : start + step]
                    tile = _tile(query_THD, key_nKLD, keys, queries, start, terms)
                    values, places = _summarise(tile.to(wide), marks_CnL, start)
                    flat = queries.reshape(-1)
                    found[flat], offsets[flat] = values, places
    return (
        found[..., 0],
        offsets,
        *(found[..., n] for n in (1, 2)),
        found[..., 3:6],
        found[..., 6:],
    )


def _tile(
    query_THD: Tensor,
    key_nKLD: Tensor,
    keys: Tensor,
    queries: Tensor,
    start: int,
    terms: Terms,
) -> Tensor:
    """Return the scores of some queries of some sequences of one length, [n, H, Q, L]."""
    num_sequences, num_queries = queries.shape
    places = torch.arange(start, start + num_queries, device=queries.device)
    group = Group(
        keys.shape[1],
        keys.reshape(-1),
        num_queries,
        queries.reshape(-1),
        places.expand(num_sequences, -1),
    )
    query_nHQD = taken(query_THD, queries.reshape(-1), num_queries)
    key_nHLD = key_nKLD.repeat_interleave(query_nHQD.shape[1] // key_nKLD.shape[1], 1)
    scores = torch.matmul(query_nHQD * terms.scale, key_nHLD.transpose(2, 3))
    if terms.disentangled is not None:
        scores = scores + position_scores(group, terms, query_nHQD, key_nHLD)
    return add_mask(scores, mask_of(group, terms, query_nHQD))


def _summarise(scores: Tensor, marks_CnL: Tensor, start: int) -> tuple[Tensor, Tensor]:
    """Return [n * Q, H, 6 + C] of a tile's scores, and the offsets of the maxima [n * Q, H].

    Destroys the scores. Products are one ``vecdot`` each, which reads the tile once.
    """
    num_sequences, num_heads, num_queries, length = scores.shape
    highest, best = scores.max(3)
    scores.sub_(highest[..., None])
    weights = scores.exp()
    # -inf times 0 is NaN: a key that is not seen has no part of the entropy.
    scores.clamp_(min=-1e30)
    dot = torch.linalg.vecdot
    total = weights.sum(3)
    places = torch.arange(start, start + num_queries, device=scores.device)
    distance_QL = (torch.arange(length, device=scores.device) - places[:, None]).abs()
    near_QO = places[:, None] + torch.tensor([-1, 0, 1], device=scores.device)
    inside = (near_QO >= 0) & (near_QO < length)
    index = near_QO.clamp(0, length - 1).expand(num_sequences, num_heads, -1, -1)
    near = weights.gather(3, index) * inside
    sums = [
        torch.ones_like(total),
        dot(weights, scores),
        dot(weights, distance_QL.to(weights)),
        *near.unbind(3),
        *(dot(weights, marks_nL[:, None, None]) for marks_nL in marks_CnL),
    ]
    values = torch.stack(sums, 3) / total[..., None]
    values[..., 1] = total.log() - values[..., 1]
    offsets = best - places
    return (
        values.transpose(1, 2).reshape(num_sequences * num_queries, num_heads, -1),
        offsets.transpose(1, 2).reshape(-1, num_heads),
    )
