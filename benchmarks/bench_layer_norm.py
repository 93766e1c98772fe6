"""Residual add and layer or RMS normalisation, each implementation beside plain PyTorch."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import torch.nn.functional as F  # noqa: N812
from torch import Tensor

from benchmarks.op_case import Shape, Work, op_specs
from encoder_engine import ops
from encoder_engine.ops.layer_norm import LayerNormFacts

if TYPE_CHECKING:
    from benchmarks.case import CaseSpec

EPSILON = 1e-12


def case_specs() -> list[CaseSpec]:
    """Forward, and forward with backward, of both."""
    return [*op_specs("layer_norm", make_work), *op_specs("rms_norm", make_rms_work)]


def make_work(shape: Shape) -> Work:
    """Add a residual and normalise, as every block does twice."""
    num_rows, width = shape.num_tokens, shape.width
    return Work(
        inputs={
            "x": shape.draw(num_rows, width, seed=0),
            "residual": shape.draw(num_rows, width, seed=1),
            "weight": shape.draw(width, seed=2),
            "bias": shape.draw(width, seed=3),
        },
        ours=_ours,
        eager=_eager,
        terms=width + num_rows,
        facts=LayerNormFacts(device=shape.device, dtype=shape.facts.dtype, width=width),
    )


def make_rms_work(shape: Shape) -> Work:
    """Divide the same rows by their root mean square."""
    work = make_work(shape)
    inputs = {name: x for name, x in work.inputs.items() if name != "bias"}
    return replace(work, inputs=inputs, ours=_ours_rms, eager=_eager_rms)


def _ours(by: str, *, x: Tensor, residual: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    return ops.layer_norm(x, weight, bias, epsilon=EPSILON, residual_TD=residual, implementation=by)


def _eager(*, x: Tensor, residual: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    return F.layer_norm(x + residual, weight.shape, weight, bias, EPSILON)


def _ours_rms(by: str, *, x: Tensor, residual: Tensor, weight: Tensor) -> Tensor:
    return ops.rms_norm(x, weight, epsilon=EPSILON, residual_TD=residual, implementation=by)


def _eager_rms(*, x: Tensor, residual: Tensor, weight: Tensor) -> Tensor:
    return F.rms_norm(x + residual, weight.shape, weight, EPSILON)
