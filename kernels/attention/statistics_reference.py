"""Attention with statistics of its weights, for one sequence and head at a time, in float64."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING

import torch

from .reference import attention, scores_of, softmax_of

if TYPE_CHECKING:
    from torch import Tensor

    from ..common.layout import Layout
    from .terms import Terms


def attention_statistics(
    query_THD: Tensor,
    key_TKD: Tensor,
    value_TKD: Tensor,
    sequences: Layout,
    marks_TC: Tensor,
    terms: Terms,
) -> tuple[Tensor, ...]:
    """Return the results of :func:`encoder_engine.ops.attention_statistics`, in its order."""
    num_tokens, num_heads = query_THD.shape[:2]
    group = num_heads // key_TKD.shape[1]
    found = query_THD.double().new_zeros(num_tokens, num_heads, 6 + marks_TC.shape[1])
    offsets = query_THD.new_zeros(num_tokens, num_heads, dtype=torch.int64)
    for start, stop in pairwise(sequences.offsets.tolist()):
        places = list(range(stop - start))
        for head in range(num_heads):
            query = query_THD[start:stop, head].double()
            key = key_TKD[start:stop, head // group].double()
            weights = softmax_of(
                scores_of(query.double(), key.double(), head, start, places, terms)
            )
            for place in places:
                row = weights[place]
                target = found[start + place, head]
                best = int(row.argmax())
                offsets[start + place, head] = best - place
                target[0] = row[best]
                target[1] = -(row[row > 0] * row[row > 0].log()).sum()
                distances = (torch.arange(len(row), device=row.device) - place).abs()
                target[2] = (row * distances).sum()
                for number, other in enumerate((place - 1, place, place + 1)):
                    target[3 + number] = row[other] if 0 <= other < len(row) else 0.0
                target[6:] = row @ marks_TC[start:stop].double()
    maximum, entropy, distance = (found[..., n].to(query_THD.dtype) for n in range(3))
    near, marked = found[..., 3:6].to(query_THD.dtype), found[..., 6:].to(query_THD.dtype)
    output = attention(query_THD, key_TKD, value_TKD, sequences, terms)
    return output, maximum, offsets, entropy, distance, near, marked
