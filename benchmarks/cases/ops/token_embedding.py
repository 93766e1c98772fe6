"""The embedding sum and norm (``ops.embedding``), each implementation against plain PyTorch."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor

from benchmarks.jobs.op_case import SEED, Shape, Work, op_specs
from encoder_engine import ops
from encoder_engine.ops.embedding import EmbeddingFacts

if TYPE_CHECKING:
    from benchmarks.measuring.case import CaseSpec

EPSILON = 1e-12
VOCAB_SIZE, NUM_POSITIONS = 30_522, 1024


def case_specs() -> list[CaseSpec]:
    """Return forward cases, and forward with backward."""
    return op_specs("embedding", make_work, group="token_embedding")


def make_work(shape: Shape) -> Work:
    """Define the case: look up tokens and positions, add them and normalise."""
    generator = torch.Generator().manual_seed(SEED)
    num_tokens, width = shape.num_tokens, shape.width
    ids, places = (
        torch.randint(0, limit, (num_tokens,), generator=generator).to(shape.device)
        for limit in (VOCAB_SIZE, NUM_POSITIONS)
    )

    def ours(by: str, tokens: Tensor, positions: Tensor, **norm: Any) -> Tensor:
        return ops.embedding(
            ids,
            places,
            None,
            token_weight_VE=tokens,
            position_weight_PE=positions,
            segment_weight_SE=None,
            norm_weight_E=norm["weight"],
            norm_bias_E=norm["bias"],
            epsilon=EPSILON,
            implementation=by,
        )

    def eager(tokens: Tensor, positions: Tensor, **norm: Any) -> Tensor:
        summed = F.embedding(ids, tokens) + F.embedding(places, positions)
        return F.layer_norm(summed, (width,), norm["weight"], norm["bias"], EPSILON)

    return Work(
        inputs=shape.inputs(
            tokens=(VOCAB_SIZE, width),
            positions=(NUM_POSITIONS, width),
            weight=(width,),
            bias=(width,),
        ),
        ours=ours,
        eager=eager,
        terms=width + num_tokens,
        read_bytes=2 * num_tokens * width * shape.dtype.itemsize,
        facts=EmbeddingFacts(device=shape.device, dtype=shape.facts.dtype, width=width),
    )
