"""GeGLU and SwiGLU, each implementation against plain PyTorch."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import torch.nn.functional as F  # noqa: N812
from torch import Tensor

from benchmarks.jobs.op_case import Function, Rival, Shape, Work, op_specs, why_missing
from encoder_engine import ops

if TYPE_CHECKING:
    from collections.abc import Callable

    from benchmarks.measuring.case import CaseSpec


def case_specs() -> list[CaseSpec]:
    """Forward, and forward with backward, of both."""
    return [
        *op_specs("geglu", partial(_make_work, ops.geglu, F.gelu)),
        *op_specs("swiglu", partial(_make_work, ops.swiglu, F.silu)),
    ]


def _make_work(operation: Callable[..., Tensor], activation: Function, shape: Shape) -> Work:
    """Gate rows one and a half times as wide as the model, as ModernBERT does."""
    num_rows, width = shape.num_tokens, shape.width * 3 // 2
    return Work(
        inputs={"x": shape.draw(num_rows, 2 * width, seed=0)},
        ours=partial(_ours, operation),
        eager=partial(_eager, activation),
        rivals=() if activation is F.gelu else (_liger(shape),),
        terms=num_rows + 1,
    )


def _liger(shape: Shape) -> Rival:
    """Liger's SwiGLU; its GeGLU uses the tanh approximation, a different function."""
    return Rival(
        name="Liger",
        function=_liger_swiglu,
        unavailable=why_missing(shape.device, "liger_kernel", "liger-kernel"),
        libraries=("liger-kernel",),
    )


def _liger_swiglu(*, x: Tensor) -> Tensor:
    from liger_kernel.transformers.functional import liger_swiglu

    gated: Tensor = liger_swiglu(*x.chunk(2, dim=1))
    return gated


def _ours(operation: Callable[..., Tensor], by: str, *, x: Tensor) -> Tensor:
    return operation(x, implementation=by)


def _eager(activation: Function, *, x: Tensor) -> Tensor:
    value, gate = x.chunk(2, dim=1)
    return activation(value) * gate
