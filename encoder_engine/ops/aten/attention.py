"""Packed attention by PyTorch's SDPA, and the attention weights, which SDPA does not return."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from encoder_engine.ops.aten.attention_calls import attend
from encoder_engine.ops.aten.attention_groups import (
    add_mask,
    groups_of,
    mask_of,
    position_scores,
    taken,
)
from encoder_engine.ops.aten.attention_operator import attend_traced
from encoder_engine.ops.aten.linear import fill_blocks

if TYPE_CHECKING:
    from torch import Tensor

    from encoder_engine.kernels.attention.terms import Terms
    from encoder_engine.packing import Sequences


def attention(
    query_MHD: Tensor, key_TKD: Tensor, value_TKD: Tensor, sequences: Sequences, terms: Terms
) -> Tensor:
    """Compute ``ops.attention`` by one SDPA call per distinct length; a trace sees one operator."""
    if torch.compiler.is_compiling() and terms.disentangled is None:
        # The lengths are values on the host, which a trace cannot read.
        return attend_traced(query_MHD, key_TKD, value_TKD, sequences, terms)
    return attend(query_MHD, key_TKD, value_TKD, sequences, terms)


def attention_probabilities(
    query_THD: Tensor, key_TKD: Tensor, sequences: Sequences, terms: Terms
) -> Tensor:
    """Compute ``ops.attention_probabilities`` by PyTorch's operators."""
    num_heads = query_THD.shape[1]
    group_size = num_heads // key_TKD.shape[1]
    longest = sequences.max_seqlen
    padded = query_THD.new_zeros(len(sequences), num_heads, longest, longest)
    for group, (length, members, _) in zip(
        groups_of(sequences, terms), sequences.length_groups, strict=True
    ):
        query_nHLD, key_nKLD = (taken(x, group.rows, length) for x in (query_THD, key_TKD))
        key_nHLD = key_nKLD.repeat_interleave(group_size, 1)
        left, right = fill_blocks(query_nHLD * terms.scale, key_nHLD)
        scores_nHLL = torch.matmul(left, right.mT)
        if terms.disentangled is not None:
            scores_nHLL = scores_nHLL + position_scores(group, terms, query_nHLD, key_nHLD)
        scores_nHLL = add_mask(scores_nHLL, mask_of(group, terms, query_THD))
        padded[members, :, :length, :length] = torch.softmax(scores_nHLL, dim=-1)
    return padded
