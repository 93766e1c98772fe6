"""Attention to leading rows alone: the trailing rows of a sequence attend, and are not seen."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest
import torch
from torch import Tensor

from encoder_engine import ops
from encoder_engine.ops.attention import AttentionFacts
from encoder_engine.packing import SelectedRows, Sequences
from tests.ops.cases import implementations, refusal
from tests.ops.compare import compare
from tests.selection import unless

CASES = [([9, 40, 3], [4, 30, 0]), ([64, 33], [40, 31]), ([4], [3]), ([5, 5], [0, 0])]
SLOPES = torch.tensor([0.5, 0.25])
REACH = 40
ENTRIES = ops.log_position_entries(6, 9)
TERMS = {
    "plain": ("query_rows",),
    "causal": ("query_rows", "causal"),
    "slopes": ("query_rows", "alibi_slopes"),
    "bias": ("query_rows", "relative_bias"),
    "positions": ("query_rows", "disentangled"),
}


def refused(implementation: str, term: str, **_: object) -> str | None:
    facts = AttentionFacts(requires_grad=True, head_dim=16, terms=TERMS[term])
    return refusal("attention", implementation, facts)


def draw(term: str, num_rows: int) -> dict[str, Tensor]:
    shapes = dict.fromkeys(("query", "key", "value"), (num_rows, 2, 16))
    if term == "bias":
        shapes["bias"] = (2, 2 * REACH + 1, 1)
    if term == "positions":
        shapes |= {"to_query": (12, 2, 16), "to_key": (12, 2, 16)}
    generator = torch.Generator().manual_seed(0)
    drawn = {name: torch.randn(shape, generator=generator) for name, shape in shapes.items()}
    if term == "bias":
        drawn["bias"] = drawn["bias"][..., 0].contiguous()
    return drawn


def eager(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    bias: Tensor | None = None,
    to_query: Tensor | None = None,
    to_key: Tensor | None = None,
    *,
    lengths: list[int],
    unattended: list[int],
    term: str,
) -> Tensor:
    """Attend one sequence at a time, with a mask of the trailing keys."""
    parts, start = [], 0
    for length, hidden in zip(lengths, unattended, strict=True):
        q, k, v = (x[start : start + length].transpose(0, 1) for x in (query, key, value))
        start += length
        scores = q @ k.mT / 4
        places = torch.arange(length)
        distance = places - places[:, None]
        if term == "slopes":
            scores = scores - SLOPES.to(q)[:, None, None] * distance.abs()
        if bias is not None:
            scores = scores + bias[:, distance.clamp(-REACH, REACH) + REACH]
        if to_query is not None and to_key is not None:
            entry = ENTRIES[distance.clamp(-9, 9) + 9]
            scores = scores + torch.einsum("hqd,qkhd->hqk", q, to_query[entry]) / 4
            scores = scores + torch.einsum("hkd,qkhd->hqk", k, to_key[entry]) / 4
        unseen = (places >= length - hidden) | ((distance > 0) & (term == "causal"))
        weights = scores.masked_fill(unseen, -torch.inf).softmax(-1)
        parts.append((weights @ v).transpose(0, 1))
    return torch.cat(parts)


@unless(refused)
@pytest.mark.parametrize("implementation", implementations("attention"))
@pytest.mark.parametrize("term", TERMS)
@pytest.mark.parametrize(("lengths", "unattended"), CASES, ids=str)
def test_trailing_rows_are_keys_of_none(
    lengths: list[int], unattended: list[int], term: str, implementation: str
) -> None:
    rows = SelectedRows.of_unattended(Sequences.from_lengths(lengths, device="cpu"), unattended)

    def run(by: str, query: Tensor, key: Tensor, value: Tensor, **learned: Tensor) -> Tensor:
        given: dict[str, Any] = {
            "relative_bias_HR": learned.get("bias"),
            "causal": term == "causal",
        }
        if term == "slopes":
            given["alibi_slopes_H"] = SLOPES.to(torch.promote_types(query.dtype, torch.float32))
        if term == "positions":
            vectors = (learned["to_query"], learned["to_key"])
            given["disentangled"] = ops.Disentangled(*vectors, ENTRIES)
        return ops.attention(
            query, key, value, rows.sequences, query_rows=rows, implementation=by, **given
        )

    plain = partial(eager, lengths=lengths, unattended=unattended, term=term)
    compare(
        partial(run, implementation),
        plain,
        plain,
        draw(term, sum(lengths)),
        terms=max(lengths) * (sum(lengths) if term in ("bias", "positions") else 1),
    )
