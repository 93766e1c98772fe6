"""Attention over packed sequences, one sequence and one head at a time, in float64."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from torch import Tensor

    from ..common.layout import Layout
    from .terms import Terms


def attention(
    query_THD: Tensor, key_TKD: Tensor, value_TKD: Tensor, sequences: Layout, terms: Terms
) -> Tensor:
    """``softmax(scale * q @ k.T + terms) @ v`` for each sequence and head."""
    num_heads = query_THD.shape[1]
    group = num_heads // key_TKD.shape[1]
    outputs = []
    for start, stop in pairwise(sequences.offsets.tolist()):
        heads = []
        for head in range(num_heads):
            query = query_THD[start:stop, head].double()
            key, value = (x[start:stop, head // group].double() for x in (key_TKD, value_TKD))
            weights = _softmax(_scores(query, key, head, terms))
            if terms.dropout > 0.0:
                weights = torch.dropout(weights, terms.dropout, train=True)
            heads.append(weights @ value)
        outputs.append(torch.stack(heads, dim=1))
    if not outputs:
        # No row to compute; the sums keep all three tied to the graph.
        return query_THD + key_TKD.sum() + value_TKD.sum()
    return torch.cat(outputs).to(query_THD.dtype)


def attention_probabilities(
    query_THD: Tensor, key_TKD: Tensor, sequences: Layout, terms: Terms
) -> Tensor:
    """``softmax(scale * q @ k.T + terms)`` for each sequence and head, zero elsewhere."""
    longest = sequences.max_seqlen
    num_heads = query_THD.shape[1]
    group = num_heads // key_TKD.shape[1]
    padded = query_THD.double().new_zeros(len(sequences), num_heads, longest, longest)
    for row, (start, stop) in enumerate(pairwise(sequences.offsets.tolist())):
        for head in range(num_heads):
            query = query_THD[start:stop, head].double()
            key = key_TKD[start:stop, head // group].double()
            weights = _softmax(_scores(query, key, head, terms))
            padded[row, head, : stop - start, : stop - start] = weights
    return padded.to(query_THD.dtype)


def _scores(query_QD: Tensor, key_KD: Tensor, head: int, terms: Terms) -> Tensor:
    scores_QK = terms.scale * (query_QD @ key_KD.T)
    places = torch.arange(len(key_KD), device=key_KD.device)
    distance_QK = places[None, :] - places[:, None]
    if terms.slopes_H is not None:
        scores_QK = scores_QK - terms.slopes_H[head].double() * distance_QK.abs()
    if terms.window is not None:
        scores_QK = scores_QK.masked_fill(distance_QK.abs() > terms.window, -torch.inf)
    if terms.causal:
        scores_QK = scores_QK.masked_fill(distance_QK > 0, -torch.inf)
    return scores_QK


def _softmax(scores_QK: Tensor) -> Tensor:
    if scores_QK.numel() == 0:
        return scores_QK
    exponentials = (scores_QK - scores_QK.amax(dim=1, keepdim=True)).exp()
    return exponentials / exponentials.sum(dim=1, keepdim=True)
