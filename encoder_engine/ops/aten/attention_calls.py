"""Packed attention by SDPA: one call per group of sequences, with or without gradients."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from encoder_engine.ops.aten.attention_groups import attend_group, groups_of, taken
from encoder_engine.ops.aten.attention_sorted import attend_sorted

if TYPE_CHECKING:
    from torch import Tensor

    from encoder_engine.kernels.attention.terms import Terms
    from encoder_engine.packing import Sequences

__all__ = ["attend"]


def attend(
    query_MHD: Tensor, key_TKD: Tensor, value_TKD: Tensor, sequences: Sequences, terms: Terms
) -> Tensor:
    """Compute packed attention by one SDPA call for each group of sequences of equal length."""
    dtype = query_MHD.dtype
    if not groups_of(sequences, terms):
        # No row to compute; the empty sums keep all tensors in the graph.
        learned = sum(x[:0].sum() for x in _learned(terms))
        return query_MHD + key_TKD[:0].sum() + value_TKD[:0].sum() + learned
    if any(x.requires_grad for x in _learned(terms)) and torch.is_grad_enabled():
        # SDPA would round every score's gradient; the gradients of terms are sums of all of them.
        wide = torch.promote_types(query_MHD.dtype, torch.float32)
        query_MHD, key_TKD, value_TKD = (x.to(wide) for x in (query_MHD, key_TKD, value_TKD))
    compute = attend_sorted if torch.is_grad_enabled() else _attend_in_place
    return compute(query_MHD, key_TKD, value_TKD, sequences, terms).to(dtype)


def _attend_in_place(
    query_MHD: Tensor, key_TKD: Tensor, value_TKD: Tensor, sequences: Sequences, terms: Terms
) -> Tensor:
    outputs = []
    for group in groups_of(sequences, terms):
        query = taken(query_MHD, group.queries, group.num_queries)
        key, value = (taken(x, group.rows, group.length) for x in (key_TKD, value_TKD))
        outputs.append(attend_group(group, query, key, value, terms))
    if len(outputs) == 1:
        return outputs[0]
    joined = torch.cat(outputs)
    order = sequences.grouped_order if terms.query_rows is None else terms.query_rows.grouped_order
    return joined if order is None else joined[order]


def _learned(terms: Terms) -> list[Tensor]:
    """List the tensors, besides query, key and value, that may need a gradient.

    These are the relative bias and disentangled attention's distance vectors.
    """
    vectors = () if terms.disentangled is None else terms.disentangled[:2]
    return [x for x in (terms.bias_HR, *vectors) if x is not None]
