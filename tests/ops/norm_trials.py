"""Layer norm, RMS norm and the norm that quantizes, as trials."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from encoder_engine import ops
from encoder_engine.ops.testing import largest
from tests.ops.test_layer_norm import eager as norm_eager
from tests.ops.test_layer_norm import normalise
from tests.ops.trial import BOTH, DROPOUTS, SIZES, WIDTHS, Draw, Space, Trial

if TYPE_CHECKING:
    from tests.ops.compare import Functions

ROWS: Space = {"rows": SIZES, "width": WIDTHS}
NORM: Space = ROWS | {"residual": BOTH, "sum": BOTH, "dropout": DROPOUTS}


def scales(x: Tensor) -> Tensor:
    """Return the scale of each row's bytes."""
    return x.float().abs().amax(1) / 127


def norm(kind: str, draw: Draw) -> Trial:
    shape, dropout = (draw["rows"], draw["width"]), draw["dropout"]
    inputs = {"x": 2 * draw.rows(*shape, seed=0) + 1, "weight": draw.rows(shape[1], seed=1)}
    if kind == "layer_norm" and draw["bias"]:
        inputs["bias"] = draw.rows(shape[1], seed=2)
    if draw["residual"]:
        inputs["residual"] = draw.rows(*shape, seed=3)
    num_outputs = 1 + draw["sum"]

    def called(x: Tensor, weight: Tensor, bias: Tensor | None, residual: Tensor | None) -> Any:
        torch.manual_seed(draw.seed)
        return normalise(kind, x, weight, bias, residual, by=draw.by, dropout=dropout)

    kept = torch.ones(shape, dtype=torch.bool, device=draw.device)
    if dropout > 0.0:
        ones = torch.ones_like(inputs["x"])
        kept = called(ones, inputs["weight"], None, 0 * ones)[1] > 0.5

    def dropped(x: Tensor) -> Tensor:
        scaled: Tensor = x * kept / (1.0 - dropout)
        return scaled

    def run(by: str) -> Functions:
        def function(
            x: Tensor, weight: Tensor, bias: Tensor | None = None, residual: Tensor | None = None
        ) -> tuple[Tensor, ...]:
            if by == draw.by:
                outputs = called(x, weight, bias, residual)
            else:
                outputs = normalise(kind, dropped(x), weight, bias, residual, by=by)
            return tuple(outputs[:num_outputs])

        return function

    def eager(x: Tensor, **others: Tensor) -> tuple[Tensor, ...]:
        return norm_eager(kind, dropped(x), **others)[:num_outputs]

    return Trial(
        inputs=inputs,
        run=run,
        eager=eager,
        terms=sum(shape) + 1,
        gradient_size=_gradient_size(kind, dropped(inputs["x"]), **inputs),
    )


def _gradient_size(kind: str, dropped: Tensor, **inputs: Tensor) -> float:
    """Return how large the terms of a norm's gradient become that cancel each other.

    What was normalised is off by a rounding of the features, times the reciprocal deviation; the
    gradient, the difference of two products with it, multiplies that once more.
    """
    x = dropped.double() + inputs.get("residual", torch.zeros(())).double()
    centred = x - x.mean(1, keepdim=True) if kind == "layer_norm" else x
    powers, sizes = centred.square().mean(1), x.abs().amax(1) if x.numel() else x.sum(1)
    spread = powers > 0
    return largest(sizes[spread] / powers[spread]) * largest(inputs["weight"])


def layer_norm_quantized(draw: Draw) -> Trial:
    plain = norm("layer_norm", draw)

    def run(by: str) -> Functions:
        def function(
            x: Tensor, weight: Tensor, bias: Tensor | None = None, residual: Tensor | None = None
        ) -> tuple[Tensor, ...]:
            output, _, scale = ops.layer_norm_quantized(
                x, weight, bias, epsilon=1e-12, residual_TD=residual, implementation=by
            )
            return output, scale.to(x.dtype)

        return function

    def eager(x: Tensor, **others: Tensor) -> tuple[Tensor, ...]:
        output = norm_eager("layer_norm", x, **others)[0]
        return output, scales(output).to(x.dtype)

    return Trial(inputs=plain.inputs, run=run, eager=eager, terms=plain.terms, differentiable=False)
