"""Rows as bytes with a scale each, each implementation against plain PyTorch."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch.nn.functional as F  # noqa: N812
from torch import Tensor

from benchmarks.jobs.op_case import Shape, Work, op_specs
from encoder_engine import ops

if TYPE_CHECKING:
    from benchmarks.measuring.case import CaseSpec

EPSILON = 1e-12


def case_specs() -> list[CaseSpec]:
    """Return the quantization of plain rows, and of layer norm's output."""
    return [
        *op_specs("quantize_rows", make_work, inference_only=True),
        *op_specs("layer_norm_quantized", make_norm_work, inference_only=True),
    ]


def make_work(shape: Shape) -> Work:
    """Quantize rows of four times the model's width, as before the second dense layer."""
    return Work(
        inputs={"x": shape.draw(shape.num_tokens, 4 * shape.width, seed=0)},
        ours=_ours,
        eager=_eager,
        compilable=False,  # it would leave out the bytes, which nobody asks for
        terms=1,
    )


def make_norm_work(shape: Shape) -> Work:
    """Add a residual, normalise and quantize, as before the first."""
    num_rows, width = shape.num_tokens, shape.width
    return Work(
        inputs={
            "x": shape.draw(num_rows, width, seed=0),
            "residual": shape.draw(num_rows, width, seed=1),
            "weight": shape.draw(width, seed=2),
            "bias": shape.draw(width, seed=3),
        },
        ours=_ours_norm,
        eager=_eager_norm,
        compilable=False,
        terms=width,
    )


# The gate looks at the scales, and at the norm; tests/ops/linear/test_quantize.py at the bytes.
def _ours(by: str, *, x: Tensor) -> Tensor:
    return ops.quantize_rows(x, implementation=by)[1]


def _eager(*, x: Tensor) -> Tensor:
    scale = x.abs().amax(1) / 127
    ((x / scale[:, None]).round() + 128).byte()
    return scale


def _ours_norm(by: str, *, x: Tensor, residual: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    return ops.layer_norm_quantized(
        x, weight, bias, epsilon=EPSILON, residual_TD=residual, implementation=by
    )[0]


def _eager_norm(*, x: Tensor, residual: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    output = F.layer_norm(x + residual, weight.shape, weight, bias, EPSILON)
    _eager(x=output)
    return output
