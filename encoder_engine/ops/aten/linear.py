"""The dense layer by PyTorch, with results that do not depend on how many rows come together."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
import torch.nn.functional as F  # noqa: N812

if TYPE_CHECKING:
    from torch import Tensor

# MKL's float32 GEMM computes a row by another kernel when it falls into a ragged tail of rows or
# when there are very few; with a multiple of 16 rows every row takes the same one, whatever the
# number of rows and threads. tests/ops/test_linear.py holds it to that.
ROW_MULTIPLE = 16


def linear(input_TK: Tensor, weight_NK: Tensor, bias_N: Tensor | None) -> Tensor:
    """Fulfil ``ops.linear``."""
    num_rows = len(input_TK)
    ragged = -num_rows % ROW_MULTIPLE
    if ragged == 0 or input_TK.device.type != "cpu" or torch.is_grad_enabled():
        return F.linear(input_TK, weight_NK, bias_N)
    padded = F.pad(input_TK, (0, 0, 0, ragged))
    return F.linear(padded, weight_NK, bias_N)[:num_rows]
