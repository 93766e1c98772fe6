"""Bias and GELU, each implementation against plain PyTorch."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch.nn.functional as F  # noqa: N812
from torch import Tensor

from benchmarks.jobs.op_case import Shape, Work, op_specs
from encoder_engine import ops

if TYPE_CHECKING:
    from benchmarks.measuring.case import CaseSpec


def case_specs() -> list[CaseSpec]:
    """Forward, and forward with backward."""
    return op_specs("bias_gelu", make_work)


def make_work(shape: Shape) -> Work:
    """Activate rows of four times the model's width, as in every feed-forward layer."""
    num_rows, width = shape.num_tokens, 4 * shape.width
    return Work(
        inputs={"x": shape.draw(num_rows, width, seed=0), "bias": shape.draw(width, seed=1)},
        ours=_ours,
        eager=_eager,
        terms=num_rows + 1,
    )


def _ours(by: str, *, x: Tensor, bias: Tensor) -> Tensor:
    return ops.bias_gelu(x, bias, implementation=by)


def _eager(*, x: Tensor, bias: Tensor) -> Tensor:
    return F.gelu(x + bias)
