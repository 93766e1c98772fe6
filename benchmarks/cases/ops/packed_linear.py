"""The dense layer with GELU and a packed weight, beside plain PyTorch."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch.nn.functional as F  # noqa: N812
from torch import Tensor

from benchmarks.jobs.op_case import Shape, Work, op_specs
from encoder_engine import ops
from encoder_engine.ops.packed_linear import PackedFacts

if TYPE_CHECKING:
    from benchmarks.measuring.case import CaseSpec


def case_specs() -> list[CaseSpec]:
    """Forward: packed weights have no gradient."""
    return op_specs("packed_linear", make_work, inference_only=True)


def make_work(shape: Shape) -> Work:
    """Widen rows fourfold, as the first layer of every feed-forward does."""
    width = shape.width
    weight, bias = shape.draw(4 * width, width, seed=1), shape.draw(4 * width, seed=2)
    packed: dict[str, ops.PackedWeight] = {}

    def ours(by: str, *, x: Tensor) -> Tensor:
        if x.dtype != weight.dtype:  # the truth, in float64
            return eager(x=x)
        if by not in packed:
            layout = None if by == "reference" else by
            packed[by] = ops.pack_weight(weight, bias, implementation=layout)
        return ops.packed_linear(x, packed[by], gelu="none", implementation=by)

    def eager(*, x: Tensor) -> Tensor:
        return F.gelu(F.linear(x, weight.to(x.dtype), bias.to(x.dtype)))

    inputs = {"x": shape.draw(shape.num_tokens, width, seed=0)}
    operations = 8 * shape.num_tokens * width**2
    return Work(
        inputs=inputs,
        ours=ours,
        eager=eager,
        terms=width + 1,
        operations=operations,
        facts=PackedFacts(device=shape.device, dtype=shape.facts.dtype),
    )
