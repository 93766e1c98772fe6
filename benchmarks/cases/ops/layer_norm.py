"""Residual add and layer or RMS normalisation, each implementation against plain PyTorch."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

import torch.nn.functional as F  # noqa: N812
from torch import Tensor

from benchmarks.jobs.op_case import (
    Function,
    Rival,
    Shape,
    Work,
    gpu_specs,
    make_shape,
    op_specs,
    why_missing,
)
from encoder_engine import ops
from encoder_engine.ops.layer_norm import LayerNormFacts

if TYPE_CHECKING:
    from benchmarks.measuring.case import CaseSpec

EPSILON = 1e-12
# BERT's own; what is timed with it is judged without, since no two drop the same.
DROPOUT = 0.1


def case_specs() -> list[CaseSpec]:
    """Forward, and forward with backward, of both; on a GPU training with dropout too."""
    dropping = gpu_specs(
        "layer_norm",
        "layer_norm_dropout",
        make_dropping_work,
        partial(make_shape, equal=True),
        equal=True,
    )
    plain = [*op_specs("layer_norm", make_work), *op_specs("rms_norm", make_rms_work)]
    # Nothing drops in inference.
    return [*plain, dropping[1]]


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
        rivals=(_liger(shape, _liger_layer_norm),),
        terms=width + num_rows,
        facts=LayerNormFacts(device=shape.device, dtype=shape.facts.dtype, width=width),
    )


def make_rms_work(shape: Shape) -> Work:
    """Draw the same inputs for RMS norm."""
    work = make_work(shape)
    inputs = {name: x for name, x in work.inputs.items() if name != "bias"}
    rivals = (_liger(shape, _liger_rms_norm),)
    return replace(work, inputs=inputs, ours=_ours_rms, eager=_eager_rms, rivals=rivals)


def make_dropping_work(shape: Shape) -> Work:
    """Drop a tenth of the branch first, as training does."""
    work = make_work(shape)
    facts = LayerNormFacts(
        device=shape.device, dtype=shape.facts.dtype, width=shape.width, dropout=True
    )
    return replace(
        work,
        timed=partial(_ours, dropout=DROPOUT),
        eager_timed=partial(_eager, dropout=DROPOUT),
        rivals=(),
        facts=facts,
    )


def _ours(
    by: str, *, x: Tensor, residual: Tensor, weight: Tensor, bias: Tensor, dropout: float = 0.0
) -> Tensor:
    return ops.layer_norm(
        *(x, weight, bias),
        epsilon=EPSILON,
        residual_TD=residual,
        dropout=dropout,
        implementation=by,
    )


def _eager(
    *, x: Tensor, residual: Tensor, weight: Tensor, bias: Tensor, dropout: float = 0.0
) -> Tensor:
    return F.layer_norm(F.dropout(x, dropout) + residual, weight.shape, weight, bias, EPSILON)


def _ours_rms(by: str, *, x: Tensor, residual: Tensor, weight: Tensor) -> Tensor:
    return ops.rms_norm(x, weight, epsilon=EPSILON, residual_TD=residual, implementation=by)


def _eager_rms(*, x: Tensor, residual: Tensor, weight: Tensor) -> Tensor:
    return F.rms_norm(x + residual, weight.shape, weight, EPSILON)


def _liger(shape: Shape, function: Function) -> Rival:
    return Rival(
        name="Liger",
        function=function,
        unavailable=why_missing(shape.device, "liger_kernel", "liger-kernel"),
        libraries=("liger-kernel",),
    )


def _liger_layer_norm(*, x: Tensor, residual: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    from liger_kernel.transformers.functional import liger_layer_norm

    normalised: Tensor = liger_layer_norm(x + residual, weight, bias, EPSILON)
    return normalised


def _liger_rms_norm(*, x: Tensor, residual: Tensor, weight: Tensor) -> Tensor:
    from liger_kernel.transformers.functional import liger_fused_add_rms_norm

    normalised: Tensor = liger_fused_add_rms_norm(x, residual, weight, EPSILON, in_place=False)[0]
    return normalised
