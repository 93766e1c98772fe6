"""Window, causal border, ALiBi slopes and grouped heads of the attention kernels, both ways."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
import torch

from encoder_engine.ops import gpu
from encoder_engine.packing import Sequences
from tests.budget import assert_within_budget, largest

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
pytestmark = pytest.mark.skipif(
    DEVICE == "cpu" and not gpu.interpreted(), reason="neither a GPU nor TRITON_INTERPRET=1"
)


@dataclass(frozen=True)
class Terms:
    """What a case adds to plain attention."""

    window: int | None = None
    causal: bool = False
    slopes: bool = False
    group: int = 1


CASES = {
    "window": Terms(window=3),
    "window wider than the text": Terms(window=500),
    "window of nothing but the row": Terms(window=0),
    "causal": Terms(causal=True),
    "slopes": Terms(slopes=True),
    "grouped heads": Terms(group=2),
    "all": Terms(window=9, causal=True, slopes=True, group=2),
}
LENGTHS = [37, 0, 1, 20]


def plain(
    query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, slopes: torch.Tensor, terms: Terms
) -> torch.Tensor:
    """Compute the same from its definition, in the inputs' dtype."""
    outputs, start = [], 0
    for length in LENGTHS:
        rows = slice(start, start + length)
        q = query[rows].transpose(0, 1)
        k, v = (x[rows].transpose(0, 1).repeat_interleave(terms.group, 0) for x in (key, value))
        places = torch.arange(length, device=query.device)
        distance = places[None, :] - places[:, None]
        score = q @ k.transpose(1, 2) * 0.25
        if terms.slopes:
            score = score - slopes.to(score.dtype)[:, None, None] * distance.abs()
        seen = torch.ones(length, length, dtype=torch.bool, device=query.device)
        if terms.window is not None:
            seen &= distance.abs() <= terms.window
        if terms.causal:
            seen &= distance <= 0
        score = score.masked_fill(~seen, -torch.inf)
        outputs.append((score.softmax(-1) @ v).transpose(0, 1))
        start += length
    return torch.cat(outputs)


@pytest.mark.parametrize("name", CASES)
def test_output_and_gradients_are_within_budget(name: str) -> None:
    from encoder_engine.kernels.attention.backward import attention_backward
    from encoder_engine.kernels.attention.config import Launch
    from encoder_engine.kernels.attention.forward import attention_forward

    terms = CASES[name]
    layout = Sequences.from_lengths(LENGTHS, device=DEVICE)
    generator = torch.Generator().manual_seed(0)
    shapes = [(58, 4, 16), *[(58, 4 // terms.group, 16)] * 2, (58, 4, 16)]
    query, key, value, grad = (torch.randn(s, generator=generator).to(DEVICE) for s in shapes)
    slopes = torch.rand(4, generator=generator).to(DEVICE)
    launch = Launch(16, 16, 4, 1)
    tiles = layout.tiles(16)
    keywords = {"scale": 0.25, "dropout": 0.0, "window": terms.window, "causal": terms.causal}
    given = slopes if terms.slopes else None
    output, lse = attention_forward(
        query, key, value, layout.cu_seqlens, tiles, given, None, launch=launch, **keywords
    )
    grads = attention_backward(
        grad, query, key, value, output, lse, layout.cu_seqlens, tiles, tiles, given, None,
        query_launch=launch, key_launch=launch, **keywords,
    )  # fmt: skip
    results = []
    for dtype in (torch.float32, torch.float64):
        leaves = [x.to(dtype, copy=True).requires_grad_() for x in (query, key, value)]
        expected = plain(leaves[0], leaves[1], leaves[2], slopes, terms)
        grads_of = torch.autograd.grad(expected, leaves, grad.to(dtype))
        results.append((expected.detach(), *grads_of))
    size = largest(query, key, value, grad, *results[1])
    for what, ours, eager, truth in zip(
        ("output", "query", "key", "value"), (output, *grads), *results, strict=True
    ):
        assert_within_budget(ours, eager, truth, what, terms=37, size=size)
