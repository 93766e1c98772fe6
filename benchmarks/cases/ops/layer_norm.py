"""Residual add and layer or RMS normalisation, each implementation against plain PyTorch."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

import torch.nn.functional as F  # noqa: N812
from torch import Tensor

from benchmarks.cases.ops.linear import eager_scales
from benchmarks.jobs.op_case import CPU, GPU, Shape, Work, liger, op_specs
from encoder_engine import ops
from encoder_engine.ops.layer_norm import LayerNormFacts

if TYPE_CHECKING:
    from benchmarks.measuring.case import CaseSpec

EPSILON = 1e-12
# BERT's own; what is timed with it is judged without, since no two drop the same.
DROPOUT = 0.1


def case_specs() -> list[CaseSpec]:
    """Return forward cases, and forward with backward; on a GPU also training with dropout."""
    return [
        *op_specs("layer_norm", make_work),
        *op_specs("rms_norm", make_rms_work),
        *op_specs("layer_norm_quantized", make_quantized_work, modes=("forward",), devices=CPU),
        # Nothing drops in inference.
        *op_specs(
            "layer_norm",
            make_dropping_work,
            group="layer_norm_dropout",
            modes=("training",),
            lengths=("equal",),
            devices=GPU,
        ),
    ]


def make_work(shape: Shape) -> Work:
    """Define the case: add a residual and apply layer norm, as every block does twice."""
    rows, width = (shape.num_tokens, shape.width), (shape.width,)
    return Work(
        inputs=shape.inputs(x=rows, residual=rows, weight=width, bias=width),
        ours=_ours,
        eager=_eager,
        rivals=(liger(shape, _liger_layer_norm),),
        terms=shape.width + shape.num_tokens,
        facts=LayerNormFacts(device=shape.device, dtype=shape.facts.dtype, width=shape.width),
    )


def make_rms_work(shape: Shape) -> Work:
    """Define the case: add a residual and apply RMS norm."""
    work = make_work(shape)
    return replace(
        work,
        inputs={name: x for name, x in work.inputs.items() if name != "bias"},
        ours=lambda by, x, residual, weight: ops.rms_norm(
            x, weight, epsilon=EPSILON, residual_TD=residual, implementation=by
        ),
        eager=lambda x, residual, weight: F.rms_norm(x + residual, weight.shape, weight, EPSILON),
        rivals=(liger(shape, _liger_rms_norm),),
    )


def make_dropping_work(shape: Shape) -> Work:
    """Define the case: apply dropout of a tenth to a branch, add the residual, apply layer norm.

    That is what blocks do in training.
    """
    return replace(
        make_work(shape),
        timed=partial(_ours, dropout=DROPOUT),
        eager_timed=partial(_eager, dropout=DROPOUT),
        rivals=(),
        facts=LayerNormFacts(
            device=shape.device, dtype=shape.facts.dtype, width=shape.width, dropout=True
        ),
    )


def make_quantized_work(shape: Shape) -> Work:
    """Define the case of layer norm whose output is quantized too; the gate judges the norm."""

    def eager(*, x: Tensor, residual: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
        output = _eager(x=x, residual=residual, weight=weight, bias=bias)
        eager_scales(output)
        return output

    return replace(
        make_work(shape),
        ours=lambda by, x, residual, weight, bias: ops.layer_norm_quantized(
            x, weight, bias, epsilon=EPSILON, residual_TD=residual, implementation=by
        )[0],
        eager=eager,
        rivals=(),
        compilable=False,  # it would leave out the bytes, which nobody asks for
        terms=shape.width,
        facts=None,
    )


def _ours(
    by: str, *, x: Tensor, residual: Tensor, weight: Tensor, bias: Tensor, dropout: float = 0.0
) -> Tensor:
    return ops.layer_norm(
        x, weight, bias, epsilon=EPSILON, residual_TD=residual, dropout=dropout, implementation=by
    )


def _eager(
    *, x: Tensor, residual: Tensor, weight: Tensor, bias: Tensor, dropout: float = 0.0
) -> Tensor:
    return F.layer_norm(F.dropout(x, dropout) + residual, weight.shape, weight, bias, EPSILON)


def _liger_layer_norm(*, x: Tensor, residual: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    from liger_kernel.transformers.functional import liger_layer_norm

    normalised: Tensor = liger_layer_norm(x + residual, weight, bias, EPSILON)
    return normalised


def _liger_rms_norm(*, x: Tensor, residual: Tensor, weight: Tensor) -> Tensor:
    from liger_kernel.transformers.functional import liger_fused_add_rms_norm

    normalised: Tensor = liger_fused_add_rms_norm(x, residual, weight, EPSILON, in_place=False)[0]
    return normalised
