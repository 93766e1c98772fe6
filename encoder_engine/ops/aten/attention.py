"""Packed attention by PyTorch's SDPA, sequences of equal length together: no padding."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
import torch.nn.functional as F  # noqa: N812

if TYPE_CHECKING:
    from torch import Tensor

    from encoder_engine.packing import Sequences


def attention(
    query_THD: Tensor,
    key_THD: Tensor,
    value_THD: Tensor,
    sequences: Sequences,
    *,
    scale: float,
    dropout: float,
) -> Tensor:
    """Fulfil ``ops.attention``: one SDPA call per distinct length."""
    groups = sequences.length_groups
    if not groups:
        # No row to compute; the sum keeps all three tied to the graph.
        return query_THD + key_THD + value_THD
    heads = query_THD.shape[1:]
    outputs = []
    for length, _, rows in groups:
        query, key, value = (
            packed[rows].view(-1, length, *heads).transpose(1, 2)
            for packed in (query_THD, key_THD, value_THD)
        )
        output = F.scaled_dot_product_attention(query, key, value, dropout_p=dropout, scale=scale)
        outputs.append(output.transpose(1, 2).reshape(-1, *heads))
    if len(outputs) == 1:
        return outputs[0]
    joined = torch.cat(outputs)
    order = sequences.grouped_order
    return joined if order is None else joined[order]


def attention_probabilities(
    query_THD: Tensor, key_THD: Tensor, sequences: Sequences, *, scale: float
) -> Tensor:
    """Fulfil ``ops.attention_probabilities``."""
    num_heads = query_THD.shape[1]
    longest = sequences.max_seqlen
    padded = query_THD.new_zeros(len(sequences), num_heads, longest, longest)
    for row, (start, stop) in enumerate(
        zip(sequences.offsets[:-1], sequences.offsets[1:], strict=True)
    ):
        query_HLD, key_HLD = (x[start:stop].transpose(0, 1) for x in (query_THD, key_THD))
        scores_HLL = torch.matmul(query_HLD * scale, key_HLD.transpose(1, 2))
        length = stop - start
        padded[row, :, :length, :length] = torch.softmax(scores_HLL, dim=-1)
    return padded
