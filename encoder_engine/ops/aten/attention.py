"""Packed attention by PyTorch's SDPA, sequences of equal length together: no padding."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
import torch.nn.functional as F  # noqa: N812

if TYPE_CHECKING:
    from torch import Tensor

    from encoder_engine.kernels.attention.terms import Terms
    from encoder_engine.packing import Sequences


def attention(
    query_THD: Tensor, key_TKD: Tensor, value_TKD: Tensor, sequences: Sequences, terms: Terms
) -> Tensor:
    """Fulfil ``ops.attention``: one SDPA call per distinct length."""
    groups = sequences.length_groups
    if not groups:
        # No row to compute; the sum keeps all three tied to the graph.
        return query_THD + key_TKD.sum() + value_TKD.sum()
    heads = query_THD.shape[1:]
    outputs = []
    for length, _, rows in groups:
        query, key, value = (
            packed[rows].view(-1, length, *packed.shape[1:]).transpose(1, 2)
            for packed in (query_THD, key_TKD, value_TKD)
        )
        mask = _mask(length, terms, query_THD)
        output = _attend(query, key, value, mask, dropout=terms.dropout, scale=terms.scale)
        outputs.append(output.transpose(1, 2).reshape(-1, *heads))
    if len(outputs) == 1:
        return outputs[0]
    joined = torch.cat(outputs)
    order = sequences.grouped_order
    return joined if order is None else joined[order]


def _mask(length: int, terms: Terms, like: Tensor) -> Tensor | None:
    """Return what SDPA is to add to the scores, or which it is to keep: [1 or H, L, L]."""
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


def _attend(
    query_nHLD: Tensor,
    key_nKLD: Tensor,
    value_nKLD: Tensor,
    mask: Tensor | None,
    *,
    dropout: float,
    scale: float,
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
        query, key, value, attn_mask=mask, dropout_p=dropout, scale=scale
    )
    return output[:num_sequences, ..., :head_dim]


def attention_probabilities(
    query_THD: Tensor, key_TKD: Tensor, sequences: Sequences, terms: Terms
) -> Tensor:
    """Fulfil ``ops.attention_probabilities``."""
    num_heads = query_THD.shape[1]
    group = num_heads // key_TKD.shape[1]
    longest = sequences.max_seqlen
    padded = query_THD.new_zeros(len(sequences), num_heads, longest, longest)
    for row, (start, stop) in enumerate(
        zip(sequences.offsets[:-1], sequences.offsets[1:], strict=True)
    ):
        query_HLD, key_KLD = (x[start:stop].transpose(0, 1) for x in (query_THD, key_TKD))
        key_HLD = key_KLD.repeat_interleave(group, 0)
        scores_HLL = torch.matmul(query_HLD * terms.scale, key_HLD.transpose(1, 2))
        length = int(stop - start)
        mask = _mask(length, terms, query_THD)
        if mask is not None and mask.dtype == torch.bool:
            scores_HLL = scores_HLL.masked_fill(~mask, -torch.inf)
        elif mask is not None:
            scores_HLL = scores_HLL + mask
        padded[row, :, :length, :length] = torch.softmax(scores_HLL, dim=-1)
    return padded
