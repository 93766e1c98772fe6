"""Packed attention by SDPA, sequences of equal length together: no padding."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
import torch.nn.functional as F  # noqa: N812

if TYPE_CHECKING:
    from torch import Tensor

    from encoder_engine.kernels.attention.terms import Terms
    from encoder_engine.packing import Sequences


def attend(
    query_THD: Tensor, key_TKD: Tensor, value_TKD: Tensor, sequences: Sequences, terms: Terms
) -> Tensor:
    """Call SDPA once per distinct length."""
    groups = sequences.length_groups
    if not groups:
        # No row to compute; the sums keep all three tied to the graph.
        return query_THD + key_TKD.sum() + value_TKD.sum()
    outputs = []
    for length, _, rows in groups:
        query, key, value = (group_of(x, rows, length) for x in (query_THD, key_TKD, value_TKD))
        output_nHLD = _attend(query, key, value, mask_of(length, terms, query_THD), terms)
        outputs.append(output_nHLD.transpose(1, 2).reshape(-1, *query_THD.shape[1:]))
    return joined(outputs, sequences)


def group_of(packed_THD: Tensor, rows: Tensor | slice, length: int) -> Tensor:
    """Take a group's rows out: [n, H, L, D]."""
    return packed_THD[rows].view(-1, length, *packed_THD.shape[1:]).transpose(1, 2)


def joined(groups: list[Tensor], sequences: Sequences) -> Tensor:
    """Put all groups' rows back in order: [T, H, D]."""
    if len(groups) == 1:
        return groups[0]
    together = torch.cat(groups)
    order = sequences.grouped_order
    return together if order is None else together[order]


def mask_of(length: int, terms: Terms, like: Tensor) -> Tensor | None:
    """Return what is to be added to the scores, or (bool) which are kept: [1 or H, L, L]."""
    if not terms.names():
        return None
    places = torch.arange(length, device=like.device)
    distance_1LL = (places[None, :] - places[:, None])[None]
    seen_1LL = torch.ones_like(distance_1LL, dtype=torch.bool)
    if terms.window is not None:
        seen_1LL = distance_1LL.abs() <= terms.window
    if terms.causal:
        seen_1LL = seen_1LL & (distance_1LL <= 0)
    if terms.slopes_H is None:
        return seen_1LL
    added_HLL: Tensor = -terms.slopes_H[:, None, None] * distance_1LL.abs()
    return added_HLL.to(like.dtype).masked_fill(~seen_1LL, -torch.inf)


def add_mask(scores: Tensor, mask: Tensor | None) -> Tensor:
    """Apply what :func:`mask_of` returned to scores."""
    if mask is None:
        return scores
    return scores.masked_fill(~mask, -torch.inf) if mask.dtype == torch.bool else scores + mask


def _attend(
    query_nHLD: Tensor, key_nKLD: Tensor, value_nKLD: Tensor, mask: Tensor | None, terms: Terms
) -> Tensor:
    """Call SDPA so that, on a CPU, a sequence's bits do not depend on the others.

    Two things would make them: rows that do not start on whole vectors, whose alignment follows
    from what lies before them; and a single piece of work, which MKL then splits among threads.
    """
    num_sequences, num_heads, _, head_dim = query_nHLD.shape
    group = num_heads // key_nKLD.shape[1]
    if group > 1:
        key_nKLD, value_nKLD = (x.repeat_interleave(group, 1) for x in (key_nKLD, value_nKLD))
    tensors = [query_nHLD, key_nKLD, value_nKLD]
    invariant = query_nHLD.device.type == "cpu" and not torch.is_grad_enabled()
    if invariant and (head_dim % 4 or head_dim < 12):
        tensors = [F.pad(x, (0, -head_dim % 16)) for x in tensors]
    if invariant and num_sequences * num_heads == 1:
        tensors = [x.expand(2, -1, -1, -1) for x in tensors]
    query, key, value = tensors
    output = F.scaled_dot_product_attention(
        query, key, value, attn_mask=mask, dropout_p=terms.dropout, scale=terms.scale
    )
    return output[:num_sequences, ..., :head_dim]
