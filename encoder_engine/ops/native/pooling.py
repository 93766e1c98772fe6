"""Pooling by the C++ extension: forward, without gradients."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from encoder_engine import _native

if TYPE_CHECKING:
    from encoder_engine.packing import Sequences


def pooling(hidden_TD: Tensor, sequences: Sequences, *, mode: str, normalize: bool) -> Tensor:
    """Compute ``ops.pooling`` by the C++ extension."""
    # The operator exists for tracing; a call through it costs more than a short text's pooling.
    compute = operator if torch.compiler.is_compiling() else _compute
    pooled_BD: Tensor = compute(hidden_TD, sequences.cu_seqlens, mode, normalize)
    return pooled_BD


def _compute(hidden_TD: Tensor, cu_seqlens: Tensor, mode: str, normalize: bool) -> Tensor:
    num_sequences, width = cu_seqlens.shape[0] - 1, hidden_TD.shape[1]
    pooled_BD = torch.empty(num_sequences, width, dtype=hidden_TD.dtype)
    hidden_TD, cu_seqlens = hidden_TD.contiguous(), cu_seqlens.contiguous()
    _native.pool_rows(
        *(hidden_TD.dtype == torch.bfloat16, mode, normalize),
        *(hidden_TD.data_ptr(), cu_seqlens.data_ptr(), pooled_BD.data_ptr()),
        *(num_sequences, width, torch.get_num_threads()),
    )
    return pooled_BD


operator = torch.library.custom_op("encoder_engine::native_pooling", mutates_args=())(_compute)


@operator.register_fake
def _(hidden_TD: Tensor, cu_seqlens: Tensor, mode: str, normalize: bool) -> Tensor:
    return hidden_TD.new_empty(cu_seqlens.shape[0] - 1, hidden_TD.shape[1])
