"""Rotary position embeddings, each implementation against plain PyTorch."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from benchmarks.jobs.op_case import Shape, Work, op_specs
from encoder_engine import ops
from encoder_engine.packing import Sequences

if TYPE_CHECKING:
    from benchmarks.measuring.case import CaseSpec

BASE = 160_000.0


def case_specs() -> list[CaseSpec]:
    """Return forward cases, and forward with backward."""
    return op_specs("rotary", make_work)


def make_work(shape: Shape) -> Work:
    """Define the case: rotate query and key; each candidate returns both as one tensor."""
    positions = Sequences.from_lengths(shape.lengths, device=shape.device).positions
    # In float64 it serves the reference too; all others are given its float32.
    exact = ops.rotary_table(
        max(shape.lengths), shape.head_dim, base=BASE, device=shape.device, dtype=torch.float64
    )
    tables = {dtype: exact.to(dtype) for dtype in (torch.float32, torch.float64)}

    def ours(by: str, *, query: Tensor, key: Tensor) -> Tensor:
        table = tables[torch.promote_types(query.dtype, torch.float32)]
        return torch.cat(ops.rotary(query, key, table, positions, implementation=by))

    def eager(*, query: Tensor, key: Tensor) -> Tensor:
        halves = tables[torch.float32][positions].chunk(2, dim=1)
        cosine, sine = (x[:, None].repeat(1, 1, 2) for x in halves)

        def turn(x: Tensor) -> Tensor:
            wide = x.float()
            first, second = wide.chunk(2, dim=2)
            return (wide * cosine + torch.cat((-second, first), dim=2) * sine).to(x.dtype)

        return torch.cat((turn(query), turn(key)))

    sizes = (shape.num_tokens, shape.num_heads, shape.head_dim)
    return Work(inputs=shape.inputs(query=sizes, key=sizes), ours=ours, eager=eager, terms=2)
