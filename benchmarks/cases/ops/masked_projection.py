"""The masked-token head (``ops.masked_cross_entropy``), both ways, against PyTorch's own."""

from __future__ import annotations

import inspect
from functools import partial
from typing import TYPE_CHECKING

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor

from benchmarks.jobs.op_case import SEED, Rival, Shape, Work, op_specs, why_missing
from encoder_engine import ops

if TYPE_CHECKING:
    from benchmarks.measuring.case import CaseSpec

VOCAB_SIZE, MASKED_SHARE = 30_522, 0.15
# Of a few rows, as in a smoke run, fewer tokens show as much.
FEW_ROWS, SMALL_VOCAB = 1024, 509
IGNORED = -100


def case_specs() -> list[CaseSpec]:
    """Return forward alone, and forward with backward, with and without stored logits."""
    name = "masked_cross_entropy"
    return [
        *op_specs(name, partial(make_work, "stored")),
        *op_specs(name, partial(make_work, "tiled"), prefix=f"{name}_tiled"),
    ]


def make_work(mode: ops.ProjectionMode | None, shape: Shape, vocab_size: int | None = None) -> Work:
    """Score 15% of the rows against a vocabulary, BERT's by default; the dense head scores all."""
    generator = torch.Generator().manual_seed(SEED)
    num_tokens, width = shape.num_tokens, shape.width
    num_rows = round(MASKED_SHARE * num_tokens)
    vocab_size = vocab_size or (SMALL_VOCAB if num_tokens < FEW_ROWS else VOCAB_SIZE)
    rows = torch.randperm(num_tokens, generator=generator)[:num_rows].sort().values
    labels = torch.randint(0, vocab_size, (num_rows,), generator=generator)
    rows, labels = rows.to(shape.device), labels.to(shape.device)
    all_labels = torch.full((num_tokens,), IGNORED, device=shape.device)
    all_labels[rows] = labels
    return Work(
        inputs={
            "hidden": shape.draw(num_tokens, width, seed=0),
            "weight": shape.draw(vocab_size, width, seed=1) * width**-0.5,
            "bias": shape.draw(vocab_size, seed=2),
        },
        ours=partial(_ours, mode, rows, labels),
        eager=partial(_eager, rows, labels),
        rivals=(
            Rival(name="torch dense head", function=partial(_eager, None, all_labels)),
            Rival(
                name="torch linear_cross_entropy",
                function=partial(_chunked, rows, labels),
                unavailable=_why_not_chunked(),
            ),
            Rival(
                name="Liger",
                function=partial(_liger, rows, labels),
                unavailable=why_missing(shape.device, "liger_kernel", "liger-kernel"),
                libraries=("liger-kernel",),
            ),
            Rival(
                name="cut cross-entropy",
                function=partial(_cut, rows, labels),
                unavailable=_why_not_cut(shape.device),
                libraries=("cut-cross-entropy",),
            ),
        ),
        terms=width + vocab_size + num_rows,
        operations=2 * num_rows * vocab_size * width,
    )


# A loss of logits in half precision is as exact as they are: all return it in the inputs' dtype.


def _ours(
    mode: ops.ProjectionMode | None,
    rows: Tensor,
    labels: Tensor,
    by: str | None,
    *,
    hidden: Tensor,
    weight: Tensor,
    bias: Tensor,
) -> Tensor:
    loss = ops.masked_cross_entropy(
        hidden, rows, labels, weight, bias, mode=mode, implementation=by
    )
    return loss.to(hidden.dtype)


def _eager(
    rows: Tensor | None, labels: Tensor, *, hidden: Tensor, weight: Tensor, bias: Tensor
) -> Tensor:
    logits = F.linear(hidden if rows is None else hidden[rows], weight, bias)
    return F.cross_entropy(logits.float(), labels, ignore_index=IGNORED).to(hidden.dtype)


def _chunked(
    rows: Tensor, labels: Tensor, *, hidden: Tensor, weight: Tensor, bias: Tensor
) -> Tensor:
    options = torch.nn.LinearCrossEntropyOptions()
    loss: Tensor = F.linear_cross_entropy(
        hidden[rows], weight, labels, linear_bias=bias, options=options
    )
    return loss.to(hidden.dtype)


def _why_not_chunked() -> str | None:
    if hasattr(F, "linear_cross_entropy"):
        return None
    return f"torch {torch.__version__} has no linear_cross_entropy"


def _liger(rows: Tensor, labels: Tensor, *, hidden: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    from liger_kernel.transformers.functional import liger_fused_linear_cross_entropy

    loss: Tensor = liger_fused_linear_cross_entropy(hidden[rows], weight, labels, bias)
    return loss.to(hidden.dtype)


def _cut(rows: Tensor, labels: Tensor, *, hidden: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    """Cut Cross Entropy with its gradient filter off, so that every gradient is computed."""
    from cut_cross_entropy import linear_cross_entropy

    loss: Tensor = linear_cross_entropy(hidden[rows], weight, labels, bias=bias, filter_eps=None)
    return loss.to(hidden.dtype)


def _why_not_cut(device: str) -> str | None:
    reason = why_missing(device, "cut_cross_entropy", "cut-cross-entropy")
    if reason is not None:
        return reason
    from cut_cross_entropy import linear_cross_entropy

    if "bias" in inspect.signature(linear_cross_entropy).parameters:
        return None
    return "the installed cut-cross-entropy takes no bias"
