"""Mean pooling with normalisation, each implementation against plain PyTorch."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor

from benchmarks.jobs.op_case import Rival, Shape, Work, op_specs
from encoder_engine import ops
from encoder_engine.ops.pooling import PoolingFacts
from encoder_engine.packing import Sequences

if TYPE_CHECKING:
    from benchmarks.measuring.case import CaseSpec


def case_specs() -> list[CaseSpec]:
    """Return forward cases, and forward with backward."""
    return op_specs("pooling", make_work)


def make_work(shape: Shape) -> Work:
    """Define the case: average each sequence's rows and normalise, as sentence encoders do."""
    layout = Sequences.from_lengths(shape.lengths, device=shape.device)
    lengths = list(shape.lengths)

    def eager(hidden: Tensor) -> Tensor:
        means = [part.sum(0) / max(len(part), 1) for part in torch.split(hidden, lengths)]
        return F.normalize(torch.stack(means), dim=-1)

    def index_add(hidden: Tensor) -> Tensor:
        wide = hidden if hidden.dtype == torch.float64 else hidden.float()
        sums = wide.new_zeros(len(layout), wide.shape[1]).index_add(0, layout.sequence_ids, wide)
        # Normalised next, so the number of rows falls out of the mean.
        return F.normalize(sums, dim=-1).to(hidden.dtype)

    return Work(
        inputs=shape.inputs(hidden=(shape.num_tokens, shape.width)),
        ours=lambda by, hidden: ops.pooling(hidden, layout, normalize=True, implementation=by),
        eager=eager,
        rivals=(Rival(name="torch index_add", function=index_add),),
        compilable=False,  # one sequence at a time
        terms=shape.num_tokens + shape.width,
        facts=PoolingFacts(device=shape.device, dtype=shape.facts.dtype, width=shape.width),
    )
