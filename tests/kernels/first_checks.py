"""Holds the kernels that are likeliest to be wrong to float64, one call a process.

``python -m tests.kernels.first_checks --head-dim 64 --dropout 0.1``: attention and the gradients of
query, key and value in bfloat16, with the very weights dropped that the kernels dropped.
``--gluon 128``, with or without ``--turns``: by the forward kernel in Gluon with so many rows a
program, on sequences that every multiprocessor gets several tiles of; ``--gluon-gradients``: by its
gradients. ``--norm 0.1``: layer norm of a sum with a tenth of one term dropped. A wrong result ends
it with 1.

How it works: attention returns its weights where the values are one-hot rows; a call for each
``head_dim`` of the keys shows which weights were dropped. The seed is the same in every call.
"""

from __future__ import annotations

import argparse
import os
import sys

import torch

# Before Triton is imported: without a GPU it interprets its kernels.
if not torch.cuda.is_available():
    os.environ.setdefault("TRITON_INTERPRET", "1")

from itertools import pairwise
from typing import TYPE_CHECKING, Any

import torch.nn.functional as F  # noqa: N812
from encoder_engine.kernels.attention.config import GLUON_LAUNCHES
from encoder_engine.kernels.common.pinned import pin
from torch import Tensor

from encoder_engine import ops
from encoder_engine.ops.testing import rows
from encoder_engine.packing import Sequences
from tests.ops.compare import compare

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextlib import AbstractContextManager

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
# Several blocks and a ragged one, one row, none, and a short text.
LENGTHS = [300, 1, 0, 77]
# Of whole and ragged blocks; so many that programs take one tile after the other. The gradients in
# Gluon have a kernel of their own for up to 512 tokens.
MANY_LENGTHS = [200, 64, 130, 1, 0, 300, 128, 700] * 32
MANY_SHORT_LENGTHS = [min(length, 512) for length in MANY_LENGTHS]
NUM_HEADS, SEED = 3, 5
NORM_ROWS, NORM_WIDTH, EPSILON = 77, 1024, 1e-5


def check_attention(
    lengths: list[int], *, head_dim: int, dropout: float, dtype: torch.dtype
) -> None:
    """Hold output and gradients to the budget; raises ``AssertionError``."""
    layout = Sequences.from_lengths(lengths, device=DEVICE)
    shape = (sum(lengths), NUM_HEADS, head_dim)
    names = ("query", "key", "value")
    inputs = {
        name: rows(*shape, seed=seed, dtype=dtype, device=DEVICE) for seed, name in enumerate(names)
    }

    def ours(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        torch.manual_seed(SEED)
        return ops.attention(query, key, value, layout, dropout=dropout, implementation="triton")

    kept = _kept_weights(ours, inputs, layout) if dropout else None

    def eager(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        parts = [query[:0]]
        for start, stop in pairwise(layout.offsets.tolist()):
            q, k, v = (x[start:stop].transpose(0, 1) for x in (query, key, value))
            weights = torch.softmax(q @ k.transpose(1, 2) * head_dim**-0.5, dim=-1)
            if kept is not None:
                mask = kept[:, start:stop, : stop - start].to(weights.dtype)
                weights = weights * mask / (1.0 - dropout)
            parts.append((weights @ v).transpose(0, 1))
        return torch.cat(parts)

    compare(ours, eager, eager, inputs, terms=max(head_dim, *lengths))


def _kept_weights(
    ours: Callable[..., Tensor], inputs: dict[str, Tensor], layout: Sequences
) -> Tensor:
    """Return which weights are kept: bool [H, T, longest]."""
    num_tokens, num_heads, head_dim = inputs["value"].shape
    query, key = (inputs[name].detach() for name in ("query", "key"))
    kept = torch.zeros(num_heads, num_tokens, layout.max_seqlen, dtype=torch.bool, device=DEVICE)
    for first in range(0, layout.max_seqlen, head_dim):
        places = layout.positions - first
        columns = torch.arange(head_dim, device=places.device)
        value = (places[:, None] == columns).to(query.dtype)[:, None].repeat(1, num_heads, 1)
        seen = ours(query, key, value).detach() > 0
        width = min(head_dim, layout.max_seqlen - first)
        kept[:, :, first : first + width] = seen[..., :width].transpose(0, 1)
    return kept


def check_norm(*, dropout: float, dtype: torch.dtype) -> None:
    """Hold layer norm of a sum and its gradients to the budget; raises ``AssertionError``."""
    shape = {"x": (NORM_ROWS, NORM_WIDTH), "residual": (NORM_ROWS, NORM_WIDTH)}
    shape |= {"weight": (NORM_WIDTH, 1), "bias": (NORM_WIDTH, 1)}
    inputs = {
        name: rows(*sizes, seed=seed, dtype=dtype, device=DEVICE)
        for seed, (name, sizes) in enumerate(shape.items())
    }
    inputs |= {name: inputs[name][:, 0].contiguous() for name in ("weight", "bias")}

    def ours(x: Tensor, residual: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
        return _drop(x, residual, weight, bias)[0]

    def _drop(x: Tensor, residual: Tensor, weight: Tensor, bias: Tensor) -> tuple[Tensor, Tensor]:
        torch.manual_seed(SEED)
        return ops.layer_norm(
            *(x, weight, bias),
            epsilon=EPSILON,
            residual_TD=residual,
            dropout=dropout,
            return_sum=True,
            implementation="triton",
        )

    ones = torch.ones_like(inputs["x"])
    kept = _drop(ones, 0 * ones, inputs["weight"], inputs["bias"])[1] > 0.5

    def eager(x: Tensor, residual: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
        summed = x * kept / (1.0 - dropout) + residual
        return F.layer_norm(summed, weight.shape, weight, bias, EPSILON)

    compare(ours, eager, eager, inputs, terms=NORM_ROWS + NORM_WIDTH)


def _in_gluon(given: argparse.Namespace) -> AbstractContextManager[None]:
    pins: dict[str, Any] = {}
    if given.gluon is not None:
        launch = GLUON_LAUNCHES[given.head_dim, given.gluon]
        pins["attention_forward"] = launch._replace(turns=given.turns)
    if given.gluon_gradients:
        pins["attention_gluon_gradients"] = True
    pinned: AbstractContextManager[None] = pin(**pins)
    return pinned


def main(arguments: list[str] | None = None) -> int:
    """Run one check; return 1 and print what is wrong, or 0."""
    parser = argparse.ArgumentParser(
        description=__doc__, prog="python -m tests.kernels.first_checks"
    )
    parser.add_argument("--head-dim", type=int, default=64)
    parser.add_argument("--dropout", type=float, default=0.0)
    parser.add_argument("--lengths", type=int, nargs="+")
    parser.add_argument("--gluon", type=int, metavar="ROWS")
    parser.add_argument("--turns", action="store_true")
    parser.add_argument("--gluon-gradients", action="store_true")
    parser.add_argument("--norm", type=float, metavar="DROPOUT")
    parser.add_argument("--dtype", choices=["float16", "bfloat16", "float32"], default="bfloat16")
    given = parser.parse_args(arguments)
    dtype = getattr(torch, given.dtype)
    in_gluon = given.gluon is not None or given.gluon_gradients
    chosen = [given.lengths or (MANY_LENGTHS if in_gluon else LENGTHS)]
    if given.gluon_gradients and not given.lengths:
        chosen.append(MANY_SHORT_LENGTHS)
    try:
        if given.norm is not None:
            check_norm(dropout=given.norm, dtype=dtype)
        else:
            with _in_gluon(given):
                for lengths in chosen:
                    check_attention(
                        lengths, head_dim=given.head_dim, dropout=given.dropout, dtype=dtype
                    )
    except AssertionError as error:
        sys.stdout.write(f"{error}\n")
        return 1
    sys.stdout.write("within the budget\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
