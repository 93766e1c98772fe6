"""Causal attention of queries a block beyond the last key: trailing rows that nothing attends to.

Kernels leave out the blocks of keys that the places of their rows say are later.
"""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from encoder_engine import ops
from encoder_engine.ops.attention import AttentionFacts
from encoder_engine.packing import SelectedRows, Sequences
from tests.ops.cases import implementations, refusal
from tests.ops.compare import compare, compare_outputs
from tests.selection import unless

LENGTHS, UNATTENDED = [100, 3], [36, 0]
HEADS, HEAD_DIM = 2, 16


def refused(implementation: str, has_gradients: bool, **_: object) -> str | None:
    terms = ("query_rows", "causal")
    facts = AttentionFacts(requires_grad=has_gradients, head_dim=HEAD_DIM, terms=terms)
    return refusal("attention", implementation, facts)


def eager(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
    """Attend one text at a time, with a mask of its trailing and its later keys."""
    parts, start = [], 0
    for length, hidden in zip(LENGTHS, UNATTENDED, strict=True):
        q, k, v = (x[start : start + length].transpose(0, 1) for x in (query, key, value))
        start += length
        places = torch.arange(length)
        scores = q @ k.mT * HEAD_DIM**-0.5
        unseen = (places >= length - hidden) | (places > places[:, None])
        parts.append((scores.masked_fill(unseen, -torch.inf).softmax(-1) @ v).transpose(0, 1))
    return torch.cat(parts)


@unless(refused)
@pytest.mark.parametrize("has_gradients", [True, False], ids=["gradients", "inference"])
@pytest.mark.parametrize("implementation", implementations("attention"))
def test_they_see_every_key(implementation: str, has_gradients: bool) -> None:
    rows = SelectedRows.of_unattended(Sequences.from_lengths(LENGTHS, device="cpu"), UNATTENDED)
    generator = torch.Generator().manual_seed(0)
    inputs = {
        name: torch.randn(sum(LENGTHS), HEADS, HEAD_DIM, generator=generator)
        for name in ("query", "key", "value")
    }

    def run(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        return ops.attention(
            *(query, key, value, rows.sequences),
            query_rows=rows,
            causal=True,
            implementation=implementation,
        )

    check = compare if has_gradients else compare_outputs
    check(run, eager, eager, inputs, terms=max(LENGTHS))
