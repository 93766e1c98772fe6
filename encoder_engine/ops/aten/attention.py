"""Packed attention by PyTorch: SDPA, and the probabilities it does not return."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING

import torch

from encoder_engine.ops.aten.attention_groups import add_mask, attend, mask_of
from encoder_engine.ops.aten.attention_operator import attend_traced

if TYPE_CHECKING:
    from torch import Tensor

    from encoder_engine.kernels.attention.terms import Terms
    from encoder_engine.packing import Sequences


def attention(
    query_THD: Tensor, key_TKD: Tensor, value_TKD: Tensor, sequences: Sequences, terms: Terms
) -> Tensor:
    """Fulfil ``ops.attention``: one SDPA call per distinct length; in a trace, one operator."""
    if torch.compiler.is_compiling():
        # The lengths are known on the host, where a trace cannot look.
        layout = [sequences.cu_seqlens]
        traced: Tensor = attend_traced(query_THD, key_TKD, value_TKD, layout, terms)
        return traced
    return attend(query_THD, key_TKD, value_TKD, sequences, terms)


def attention_probabilities(
    query_THD: Tensor, key_TKD: Tensor, sequences: Sequences, terms: Terms
) -> Tensor:
    """Fulfil ``ops.attention_probabilities``."""
    num_heads = query_THD.shape[1]
    group = num_heads // key_TKD.shape[1]
    longest = sequences.max_seqlen
    padded = query_THD.new_zeros(len(sequences), num_heads, longest, longest)
    for row, (start, stop) in enumerate(pairwise(sequences.offsets.tolist())):
        query_HLD, key_KLD = (x[start:stop].transpose(0, 1) for x in (query_THD, key_TKD))
        key_HLD = key_KLD.repeat_interleave(group, 0)
        scores_HLL = torch.matmul(query_HLD * terms.scale, key_HLD.transpose(1, 2))
        length = stop - start
        scores_HLL = add_mask(scores_HLL, mask_of(length, terms, query_THD))
        padded[row, :, :length, :length] = torch.softmax(scores_HLL, dim=-1)
    return padded
