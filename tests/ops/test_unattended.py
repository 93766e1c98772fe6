"""Attention to leading rows alone: the trailing rows of a sequence attend, and are not seen."""

from __future__ import annotations

import pytest
import torch

from encoder_engine import ops
from encoder_engine.ops.testing import assert_within_budget
from encoder_engine.packing import SelectedRows, Sequences

CASES = [([9, 40, 3], [4, 30, 0]), ([64, 33], [40, 31]), ([4], [3]), ([5, 5], [0, 0])]


@pytest.mark.parametrize("slopes", [False, True])
@pytest.mark.parametrize("implementation", ["reference", "aten", "native"])
@pytest.mark.parametrize(("lengths", "unattended"), CASES, ids=str)
def test_trailing_rows_are_keys_of_none(
    lengths: list[int], unattended: list[int], implementation: str, *, slopes: bool
) -> None:
    generator = torch.Generator().manual_seed(0)
    shape = (3, sum(lengths), 2, 16)
    query, key, value = torch.randn(shape, generator=generator).unbind(0)
    slopes_H = torch.tensor([0.5, 0.25]) if slopes else None
    rows = SelectedRows.of_unattended(Sequences.from_lengths(lengths, device="cpu"), unattended)
    found = ops.attention(
        *(query, key, value, rows.sequences),
        query_rows=rows,
        alibi_slopes_H=slopes_H,
        implementation=implementation,
    )

    def expected(dtype: torch.dtype) -> torch.Tensor:
        parts = []
        start = 0
        for length, hidden in zip(lengths, unattended, strict=True):
            one = [x[start : start + length].to(dtype) for x in (query, key, value)]
            start += length
            q, k, v = (x.transpose(0, 1) for x in one)
            scores = q @ k.mT / 4
            places = torch.arange(length)
            if slopes_H is not None:
                distance = (places[:, None] - places).abs()
                scores = scores - slopes_H.to(dtype)[:, None, None] * distance
            unseen = places >= length - hidden
            weights = scores.masked_fill(unseen, -torch.inf).softmax(-1)
            parts.append((weights @ v).transpose(0, 1))
        return torch.cat(parts)

    eager, truth = expected(torch.float32), expected(torch.float64)
    assert_within_budget(found, eager, truth, terms=max(lengths))
