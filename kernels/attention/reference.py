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
    query_MHD: Tensor, key_TKD: Tensor, value_TKD: Tensor, sequences: Layout, terms: Terms
) -> Tensor:
    """Return ``softmax(scale * q @ k.T + terms) @ v`` for each sequence and head."""
    num_heads = query_MHD.shape[1]
    group = num_heads // key_TKD.shape[1]
    chosen = terms.query_rows
    rows = range(sequences.offsets[-1]) if chosen is None else chosen.indices
    owned = sequences.offsets if chosen is None else chosen.within.offsets
    outputs = []
    spans = zip(pairwise(sequences.offsets.tolist()), pairwise(owned.tolist()), strict=True)
    for (start, stop), (first, last) in spans:
        queries = list(range(first, last))
        places = [int(rows[m]) - start for m in queries]
        heads = []
        for head in range(num_heads):
            query = query_MHD[queries, head].double()
            key, value = (x[start:stop, head // group].double() for x in (key_TKD, value_TKD))
            scores = scores_of(query, key, head, start, places, terms)
            weights = softmax_of(scores)
            if terms.dropout > 0.0:
                weights = torch.dropout(weights, terms.dropout, train=True)
            heads.append(weights @ value)
        outputs.append(torch.stack(heads, dim=1))
    # The empty sums keep all tensors in the graph where there is no row to compute.
    nothing = 0.0 * (key_TKD[:0].sum() + value_TKD[:0].sum())
    if terms.bias_HR is not None:
        nothing = nothing + terms.bias_HR[:0].sum()
    for vectors in (terms.disentangled or ())[:2]:
        nothing = nothing + (0.0 if vectors is None else vectors[:0].sum())
    joined = torch.cat([query_MHD[:0].double(), *outputs]) + nothing
    return joined.to(query_MHD.dtype)


def attention_probabilities(
    query_THD: Tensor, key_TKD: Tensor, sequences: Layout, terms: Terms
) -> Tensor:
    """Return ``softmax(scale * q @ k.T + terms)`` for each sequence and head, 0 elsewhere."""
    longest = sequences.max_seqlen
    num_heads = query_THD.shape[1]
    group = num_heads // key_TKD.shape[1]
    padded = query_THD.double().new_zeros(len(sequences), num_heads, longest, longest)
    for row, (start, stop) in enumerate(pairwise(sequences.offsets.tolist())):
        places = list(range(stop - start))
        for head in range(num_heads):
            query = query_THD[start:stop, head].double()
            key = key_TKD[start:stop, head // group].double()
            weights = softmax_of(scores_of(query, key, head, start, places, terms))
            padded[row, head, : stop - start, : stop - start] = weights
    return padded.to(query_THD.dtype)


def scores_of(
    query_QD: Tensor, key_KD: Tensor, head: int, start: int, places: list[int], terms: Terms
) -> Tensor:
    """Return the scores [Q, K] of one head; the sequence begins at row ``start`` of the batch.

    ``places``: the queries' positions in the sequence.
    """
    scores_QK = terms.scale * (query_QD @ key_KD.T)
    key_places = torch.arange(len(key_KD), device=key_KD.device)
    query_places = torch.tensor(places, dtype=torch.int64, device=key_KD.device)
    distance_QK = key_places[None, :] - query_places[:, None]
    if terms.slopes_H is not None:
        scores_QK = scores_QK - terms.slopes_H[head].double() * distance_QK.abs()
    if terms.bias_HR is not None:
        reach = terms.bias_HR.shape[1] // 2
        scores_QK = scores_QK + terms.bias_HR[head][distance_QK.clamp(-reach, reach) + reach]
    if terms.disentangled is not None:
        key_NHD, query_NHD, entries_R = terms.disentangled
        reach = len(entries_R) // 2
        entry_QK = entries_R[distance_QK.clamp(-reach, reach) + reach]
        if key_NHD is not None:
            of_query_QN = terms.scale * (query_QD @ key_NHD[:, head].double().T)
            scores_QK = scores_QK + of_query_QN.gather(1, entry_QK)
        if query_NHD is not None:
            of_key_KN = terms.scale * (key_KD @ query_NHD[:, head].double().T)
            scores_QK = scores_QK + of_key_KN.gather(1, entry_QK.T).T
    if terms.window is not None:
        seen_QK = distance_QK.abs() <= terms.window
        if terms.global_rows is not None:
            everywhere = torch.isin(key_places + start, terms.global_rows.rows)
            seen_QK = seen_QK | everywhere[None, :] | everywhere[query_places][:, None]
        scores_QK = scores_QK.masked_fill(~seen_QK, -torch.inf)
    if terms.causal:
        scores_QK = scores_QK.masked_fill(distance_QK > 0, -torch.inf)
    return scores_QK


def softmax_of(scores_QK: Tensor) -> Tensor:
    """Return the softmax of each row."""
    if scores_QK.numel() == 0:
        return scores_QK
    exponentials = (scores_QK - scores_QK.amax(dim=1, keepdim=True)).exp()
    return exponentials / exponentials.sum(dim=1, keepdim=True)
