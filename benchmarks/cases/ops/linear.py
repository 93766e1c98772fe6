"""The dense layer, each implementation against plain PyTorch."""

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
    return op_specs("linear", make_work)


def make_work(shape: Shape) -> Work:
    """Widen rows fourfold, as the first layer of every feed-forward does."""
    num_rows, width = shape.num_tokens, shape.width
    return Work(
        inputs={
            "x": shape.draw(num_rows, width, seed=0),
            "weight": shape.draw(4 * width, width, seed=1),
            "bias": shape.draw(4 * width, seed=2),
        },
        ours=_ours,
        eager=_eager,
        terms=5 * width + num_rows,
        operations=8 * num_rows * width**2,
    )


def _ours(by: str, *, x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    return ops.linear(x, weight, bias, implementation=by)


def _eager(*, x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    return F.linear(x, weight, bias)
