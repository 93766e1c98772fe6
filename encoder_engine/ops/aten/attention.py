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
        output = _attend(query, key, value, dropout=dropout, scale=scale)
        outputs.append(output.transpose(1, 2).reshape(-1, *heads))
    if len(outputs) == 1:
        return outputs[0]
    joined = torch.cat(outputs)
    order = sequences.grouped_order
    return joined if order is None else joined[order]


def _attend(
    query_nHLD: Tensor, key_nHLD: Tensor, value_nHLD: Tensor, *, dropout: float, scale: float
) -> Tensor:
    """Call SDPA so that, on a CPU, a sequence's bits do not depend on the others.

    Two things would make them: rows that do not start on whole vectors, whose alignment follows
    from what lies before them; and a single piece of work, which MKL then splits among threads.
    """
    tensors = [query_nHLD, key_nHLD, value_nHLD]
    num_sequences, num_heads, _, head_dim = query_nHLD.shape
    invariant = query_nHLD.device.type == "cpu" and not torch.is_grad_enabled()
    if invariant and (head_dim % 4 or head_dim < 12):
        tensors = [F.pad(x, (0, -head_dim % 16)) for x in tensors]
    if invariant and num_sequences * num_heads == 1:
        tensors = [x.expand(2, -1, -1, -1) for x in tensors]
    query, key, value = tensors
    output = F.scaled_dot_product_attention(query, key, value, dropout_p=dropout, scale=scale)
    return output[:num_sequences, ..., :head_dim]


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
