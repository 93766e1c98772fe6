"""What the tests of native plans share: a batch, and a call of a plan."""

from __future__ import annotations

from typing import TYPE_CHECKING

from encoder_engine.ops.native.rows import address
from encoder_engine.ops.registry import CallFacts
from tests.ops.cases import dtype_id, refusal

if TYPE_CHECKING:
    import torch
    from torch import Tensor

    from encoder_engine._native import Plan
    from encoder_engine.packing import Sequences

LENGTHS = [3, 0, 17, 1, 40]


def refused_type(dtype: torch.dtype) -> str | None:
    """Return why no native operation takes a dtype here, or None."""
    return refusal("quantize_rows", "native", CallFacts(dtype=dtype_id(dtype)))


def refused() -> str | None:
    """Return why there are no native operations here, or None."""
    return refusal("quantize_rows", "native", CallFacts())


def new_plan() -> Plan:
    """Return a plan without steps."""
    from encoder_engine import _native

    return _native.Plan()


def run(plan: Plan, target: Tensor, layout: Sequences, **given: Tensor | None) -> Tensor:
    """Run a plan; ``given``: what the batch holds, int32."""
    source = given.pop("source", None)
    positions = given.pop("positions", None)
    plan.run(
        *(address(source), target.data_ptr(), layout.cu_seqlens.data_ptr(), address(positions)),
        *(len(layout), layout.num_tokens, 2),
        **{name: address(tensor) for name, tensor in given.items()},
    )
    return target
