"""Bias and GELU, GeGLU and SwiGLU, each implementation against plain PyTorch."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import torch.nn.functional as F  # noqa: N812

from benchmarks.jobs.op_case import Function, Shape, Work, liger, op_specs
from encoder_engine import ops

if TYPE_CHECKING:
    from benchmarks.measuring.case import CaseSpec


def case_specs() -> list[CaseSpec]:
    """Return the cases of each activation: forward, and forward with backward."""
    return [
        *op_specs("bias_gelu", make_gelu_work),
        *op_specs("geglu", partial(make_gated_work, ops.geglu, F.gelu)),
        *op_specs("swiglu", partial(make_gated_work, ops.swiglu, F.silu)),
    ]


def make_gelu_work(shape: Shape) -> Work:
    """Define the case: activate rows of four times the model's width, as feed-forwards do."""
    width = 4 * shape.width
    return Work(
        inputs=shape.inputs(x=(shape.num_tokens, width), bias=(width,)),
        ours=lambda by, x, bias: ops.bias_gelu(x, bias, implementation=by),
        eager=lambda x, bias: F.gelu(x + bias),
        terms=shape.num_tokens + 1,
    )


def make_gated_work(operation: Function, activation: Function, shape: Shape) -> Work:
    """Define the case: gate rows of 1.5 times the model's width, as ModernBERT does."""

    def eager(x: Any) -> Any:
        value, gate = x.chunk(2, dim=1)
        return activation(value) * gate

    def liger_swiglu(x: Any) -> Any:
        from liger_kernel.transformers.functional import liger_swiglu

        return liger_swiglu(*x.chunk(2, dim=1))

    return Work(
        inputs=shape.inputs(x=(shape.num_tokens, 2 * (shape.width * 3 // 2))),
        ours=lambda by, x: operation(x, implementation=by),
        eager=eager,
        # Liger's GeGLU uses the tanh approximation, a different function.
        rivals=() if activation is F.gelu else (liger(shape, liger_swiglu),),
        terms=shape.num_tokens + 1,
    )
