"""The dense layer with GELU and a packed weight, of compiled encoders, against plain PyTorch."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor

from benchmarks.jobs.op_case import Shape, Work, op_specs
from encoder_engine.inference.layers import pack
from encoder_engine.inference.rows import project_rows
from encoder_engine.models.checkpoints.stacking import to_array, to_tensor

if TYPE_CHECKING:
    from benchmarks.measuring.case import CaseSpec


def case_specs() -> list[CaseSpec]:
    """Forward: compiled encoders have no gradient."""
    return op_specs("packed_linear", make_work, inference_only=True)


def make_work(shape: Shape) -> Work:
    """Widen rows fourfold, as the first layer of every feed-forward does."""
    width = shape.width
    weight, bias = shape.draw(4 * width, width, seed=1), shape.draw(4 * width, seed=2)
    layer = pack(to_array(weight), to_array(bias))

    def ours(by: str, *, x: Tensor) -> Tensor:
        if by == "reference":
            return eager(x=x)
        threads = torch.get_num_threads()
        return to_tensor(project_rows(to_array(x), layer, function="gelu", num_threads=threads))

    def eager(*, x: Tensor) -> Tensor:
        return F.gelu(F.linear(x, weight.to(x.dtype), bias.to(x.dtype)))

    return Work(
        inputs={"x": shape.draw(shape.num_tokens, width, seed=0)},
        ours=ours,
        eager=eager,
        terms=width + 1,
        operations=8 * shape.num_tokens * width**2,
        refusals={"native": None},
    )
