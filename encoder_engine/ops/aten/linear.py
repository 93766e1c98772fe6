"""The dense layer by PyTorch, with results that do not depend on how many rows come together."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
import torch.nn.functional as F  # noqa: N812

if TYPE_CHECKING:
    from torch import Tensor


def linear(input_TK: Tensor, weight_NK: Tensor, bias_N: Tensor | None) -> Tensor:
    """Fulfil ``ops.linear``."""
    if input_TK.dtype == torch.float32 and _by_onednn(input_TK):
        return onednn_linear(input_TK, weight_NK, bias_N)
    return F.linear(input_TK, weight_NK, bias_N)


def _by_onednn(input_TK: Tensor) -> bool:
    """Say whether oneDNN computes here: on a CPU, without gradients, and not while being traced.

    MKL sums a row in an order that depends on how many rows there are; oneDNN does not, but for one
    row alone. tests/ops/test_linear.py holds it to that.
    """
    if input_TK.device.type != "cpu" or torch.is_grad_enabled() or torch.compiler.is_compiling():
        return False
    available: bool = torch.backends.mkldnn.is_available()  # type: ignore[no-untyped-call]
    return available and not torch.is_autocast_enabled("cpu")


def onednn_linear(
    input_TK: Tensor, weight_NK: Tensor, bias_N: Tensor | None, *, gelu: str | None = None
) -> Tensor:
    """Compute by oneDNN; the weight may be one it has reordered."""
    num_rows = input_TK.shape[0]
    if num_rows == 0:
        return input_TK.new_empty(0, weight_NK.shape[0])
    # One row alone is a matrix-vector product, summed in another order: it comes twice.
    rows = input_TK.expand(2, -1) if num_rows == 1 else input_TK
    post = "none" if gelu is None else "gelu"
    output: Tensor = torch.ops.mkldnn._linear_pointwise(
        rows, weight_NK, bias_N, post, [], gelu or ""
    )
    return output[:1] if num_rows == 1 else output
