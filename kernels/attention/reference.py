"""Attention over packed sequences, one sequence and one head at a time, in float64."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from torch import Tensor

    from ..common.layout import Layout


def attention(
    query_THD: Tensor,
    key_THD: Tensor,
    value_THD: Tensor,
    sequences: Layout,
    *,
    scale: float,
    dropout: float,
) -> Tensor:
    """``softmax(scale * q @ k.T) @ v`` for each sequence and head."""
    outputs = []
    bounds = sequences.offsets.tolist()
    for start, stop in pairwise(bounds):
        heads = []
        for head in range(query_THD.shape[1]):
            query, key, value = (
                x[start:stop, head].double() for x in (query_THD, key_THD, value_THD)
            )
            weights = _softmax(scale * (query @ key.T))
            if dropout > 0.0:
                weights = torch.dropout(weights, dropout, train=True)
            heads.append(weights @ value)
        outputs.append(torch.stack(heads, dim=1))
    joined = torch.cat(outputs) if outputs else (query_THD + key_THD + value_THD).double()
    return joined.to(query_THD.dtype)


def attention_probabilities(
    query_THD: Tensor, key_THD: Tensor, sequences: Layout, *, scale: float
) -> Tensor:
    """``softmax(scale * q @ k.T)`` for each sequence and head, zero elsewhere."""
    longest = sequences.max_seqlen
    num_heads = query_THD.shape[1]
    padded = query_THD.double().new_zeros(len(sequences), num_heads, longest, longest)
    bounds = sequences.offsets.tolist()
    for row, (start, stop) in enumerate(pairwise(bounds)):
        for head in range(num_heads):
            query, key = (x[start:stop, head].double() for x in (query_THD, key_THD))
            weights = _softmax(scale * (query @ key.T))
            padded[row, head, : stop - start, : stop - start] = weights
    return padded.to(query_THD.dtype)


def _softmax(scores_QK: Tensor) -> Tensor:
    if scores_QK.numel() == 0:
        return scores_QK
    exponentials = (scores_QK - scores_QK.amax(dim=1, keepdim=True)).exp()
    return exponentials / exponentials.sum(dim=1, keepdim=True)
