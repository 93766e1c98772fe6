"""The dense layer by oneDNN, its weight reordered once."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from encoder_engine.ops.aten.linear import onednn_linear

if TYPE_CHECKING:
    from encoder_engine.ops.weights import PackedWeight


def pack(weight_NK: Tensor, _bias_N: Tensor | None) -> Tensor:
    """Reorder a weight [N, K] for any number of rows; the bias is not packed."""
    content: Tensor = torch.ops.mkldnn._reorder_linear_weight(weight_NK, None)
    return content


def unpack(content: Tensor, _shape: tuple[int, int], dtype: torch.dtype) -> Tensor:
    """Return the weight, [N, K]."""
    return content.to_dense(dtype)


def packed_linear(input_TK: Tensor, weight: PackedWeight, *, gelu: str | None) -> Tensor:
    """Fulfil ``ops.packed_linear``."""
    # The operator exists for tracing: torch.compile supports oneDNN's only with weights it packed.
    compute = operator if torch.compiler.is_compiling() else _compute
    output_TN: Tensor = compute(input_TK, weight.content_for("aten"), weight.bias_N, gelu)
    return output_TN


def _compute(input_TK: Tensor, content: Tensor, bias_N: Tensor | None, gelu: str | None) -> Tensor:
    return onednn_linear(input_TK, content, bias_N, gelu=gelu)


operator = torch.library.custom_op("encoder_engine::packed_linear", mutates_args=())(_compute)


@operator.register_fake
def _(input_TK: Tensor, content: Tensor, *_: object) -> Tensor:
    return input_TK.new_empty(input_TK.shape[0], content.shape[0])
