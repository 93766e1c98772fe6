"""The masked-token head (``ops.masked_cross_entropy``), logits stored or not, against PyTorch's."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor

from benchmarks.jobs.op_case import SEED, Rival, Shape, Work, liger, op_specs
from encoder_engine import ops
from encoder_engine.ops.masked_projection import MaskedProjectionFacts

if TYPE_CHECKING:
    from benchmarks.measuring.case import CaseSpec

VOCAB_SIZE, MASKED_SHARE = 30_522, 0.15
# Of a few rows, as in a smoke run, fewer tokens show as much.
FEW_ROWS, SMALL_VOCAB = 1024, 509
IGNORED = -100


def case_specs() -> list[CaseSpec]:
    """Return forward cases, and forward with backward; logits stored, or not ("tiled")."""
    name = "masked_cross_entropy"
    return [
        *op_specs(name, partial(make_work, "stored")),
        *op_specs(name, partial(make_work, "tiled"), group=f"{name}_tiled"),
    ]


def make_work(mode: ops.ProjectionMode | None, shape: Shape, vocab_size: int | None = None) -> Work:
    """Define the case: the loss of 15% of the rows; PyTorch's dense head computes all rows' logits.

    ``vocab_size``: default: BERT's. Every candidate returns the loss in the inputs' dtype: from
    logits in half precision it is no more exact.
    """
    generator = torch.Generator().manual_seed(SEED)
    num_tokens, width = shape.num_tokens, shape.width
    num_rows = round(MASKED_SHARE * num_tokens)
    vocab_size = vocab_size or (SMALL_VOCAB if num_tokens < FEW_ROWS else VOCAB_SIZE)
    rows = torch.randperm(num_tokens, generator=generator)[:num_rows].sort().values
    labels = torch.randint(0, vocab_size, (num_rows,), generator=generator)
    rows, labels = rows.to(shape.device), labels.to(shape.device)
    all_labels = torch.full((num_tokens,), IGNORED, device=shape.device)
    all_labels[rows] = labels

    def ours(by: str | None, *, hidden: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
        loss = ops.masked_cross_entropy(
            hidden, rows, labels, weight, bias, mode=mode, implementation=by
        )
        return loss.to(hidden.dtype)

    def eager(*, hidden: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
        logits = F.linear(hidden[rows], weight, bias)
        return F.cross_entropy(logits.float(), labels).to(hidden.dtype)

    def dense(*, hidden: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
        logits = F.linear(hidden, weight, bias)
        return F.cross_entropy(logits.float(), all_labels, ignore_index=IGNORED).to(hidden.dtype)

    def chunked(*, hidden: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
        options = torch.nn.LinearCrossEntropyOptions()
        loss: Tensor = F.linear_cross_entropy(
            hidden[rows], weight, labels, linear_bias=bias, options=options
        )
        return loss.to(hidden.dtype)

    def by_liger(*, hidden: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
        from liger_kernel.transformers.functional import liger_fused_linear_cross_entropy

        loss: Tensor = liger_fused_linear_cross_entropy(hidden[rows], weight, labels, bias)
        return loss.to(hidden.dtype)

    inputs = shape.inputs(
        hidden=(num_tokens, width), weight=(vocab_size, width), bias=(vocab_size,)
    )
    inputs["weight"] *= width**-0.5
    without_chunks = f"torch {torch.__version__} has no linear_cross_entropy"
    return Work(
        inputs=inputs,
        ours=ours,
        eager=eager,
        rivals=(
            Rival(name="torch dense head", function=dense),
            Rival(
                name="torch linear_cross_entropy",
                function=chunked,
                unavailable=None if hasattr(F, "linear_cross_entropy") else without_chunks,
            ),
            liger(shape, by_liger),
        ),
        facts=MaskedProjectionFacts(
            device=shape.device, dtype=shape.facts.dtype, tiled=mode == "tiled"
        ),
        terms=width + vocab_size + num_rows,
        operations=2 * num_rows * vocab_size * width,
    )
