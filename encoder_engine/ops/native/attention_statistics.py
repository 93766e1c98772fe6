"""Attention and the statistics of its weights by the C++ extension, in one pass over the keys."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from encoder_engine.ops.native.attention import StatisticsMemory, arguments, compute

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch import Tensor

    from encoder_engine.kernels.attention.terms import Terms
    from encoder_engine.packing import Sequences


def attention_statistics(
    query_THD: Tensor,
    key_TKD: Tensor,
    value_TKD: Tensor,
    sequences: Sequences,
    marks_TC: Tensor,
    terms: Terms,
) -> tuple[Tensor, ...]:
    """Compute ``ops.attention_statistics`` by the C++ extension."""
    marks_TC = marks_TC.contiguous()
    found = _attend(query_THD, key_TKD, value_TKD, sequences, marks_TC, terms)
    if terms.global_rows is not None:
        # The kernel applies the window to every query: global ones are computed again without it.
        places = terms.global_rows.rows.long()
        unlimited = terms._replace(window=None, query_rows=terms.global_rows, global_rows=None)
        seen = _attend(query_THD[places], key_TKD, value_TKD, sequences, marks_TC, unlimited)
        found = tuple(
            whole.index_copy(0, places, part) for whole, part in zip(found, seen, strict=True)
        )
    output_THD, values_THS, offsets_TH = found
    maximum, entropy, distance = values_THS[..., :3].unbind(2)
    near, marked = values_THS[..., 3:6], values_THS[..., 6:]
    return output_THD, maximum, offsets_TH, entropy, distance, near, marked


def _attend(
    query_MHD: Tensor,
    key_TKD: Tensor,
    value_TKD: Tensor,
    sequences: Sequences,
    marks_TC: Tensor,
    terms: Terms,
) -> tuple[Tensor, ...]:
    """Return the attention output, the statistics [M, H, 6 + C] and the offsets [M, H]."""
    shape, width = query_MHD.shape[:2], 6 + marks_TC.shape[1]
    memory = StatisticsMemory(
        marks_TC, torch.empty(*shape, width), torch.empty(shape, dtype=torch.int64)
    )
    attend: Callable[..., Tensor] = compute
    output = attend(*arguments(query_MHD, key_TKD, value_TKD, sequences, terms), memory)
    return output, memory.values_MHS, memory.offsets_MH
