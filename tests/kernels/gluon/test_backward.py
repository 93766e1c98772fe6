"""Attention's gradients in Gluon, simulated, are right in any order that the warps may run in."""

from __future__ import annotations

import math
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import pytest
import torch
from encoder_engine.kernels.attention.config import (
    GLUON_BACKWARD_SCRATCH,
    GLUON_BACKWARD_SHARED,
    GluonBackwardLaunch,
)

from encoder_engine.ops.testing import assert_within_budget, largest, rows
from tests.kernels.gluon.language import functions_of
from tests.kernels.gluon.launching import BACKWARD_MODULES, Inputs, simulate_backward
from tests.kernels.gluon.test_forward import BAD, LENGTHS, draw, replaced

if TYPE_CHECKING:
    import ast
    from collections.abc import Iterable

    from torch import Tensor

# The sum in shared memory takes 512 tokens.
SHORT_LENGTHS = [200, 64, 130, 1, 0, 300, 128, 512]
NAMES = ("query", "key", "value")
SEEDS = range(4)


def with_key_heads(inputs: Inputs, num_heads: int) -> Inputs:
    """Repeat the key head, of which the forward tests draw one."""
    key, value = (x.expand(-1, num_heads, -1).contiguous() for x in (inputs.key, inputs.value))
    return Inputs(
        query=inputs.query,
        key=key,
        value=value + torch.arange(num_heads)[:, None].to(value.dtype),
        cu_seqlens=inputs.cu_seqlens,
        scale=inputs.scale,
    )


def gradients(
    inputs: Inputs, grad: Tensor, start: int, stop: int, dtype: torch.dtype
) -> tuple[dict[str, Tensor], Tensor, Tensor]:
    """Return a sequence's gradients by plain products, its log2-sum-exp2 and delta [H, L]."""
    leaves = {name: getattr(inputs, name)[start:stop].to(dtype).requires_grad_() for name in NAMES}
    group = inputs.query.shape[1] // inputs.key.shape[1]
    key, value = (leaves[name].repeat_interleave(group, 1) for name in NAMES[1:])
    scores = torch.einsum("ihd,jhd->hij", leaves["query"], key) * inputs.scale
    output = torch.einsum("hij,jhd->ihd", scores.softmax(-1), value)
    weighting = grad[start:stop].to(dtype)
    torch.autograd.backward(output, weighting)
    found = {name: leaf.grad for name, leaf in leaves.items() if leaf.grad is not None}
    lse = torch.logsumexp(scores.detach(), -1) / math.log(2)
    return found, lse, (output.detach() * weighting).sum(-1).T


def check(
    inputs: Inputs,
    launch: GluonBackwardLaunch,
    seeds: Iterable[int],
    functions: dict[str, ast.FunctionDef] | None = None,
) -> None:
    query, dtype = inputs.query, inputs.query.dtype
    grad = rows(*query.shape, seed=7, dtype=dtype, device="cpu")
    lse, delta = (torch.full((query.shape[1], len(query)), math.nan) for _ in range(2))
    expected = {}
    for sequence, (start, stop) in enumerate(pairwise(inputs.cu_seqlens)):
        if start == stop:
            continue
        truth, lse[:, start:stop], delta[:, start:stop] = gradients(
            inputs, grad, start, stop, torch.float64
        )
        if sequence in BAD:
            grad[start:stop] = BAD[sequence]
        else:
            eager = gradients(inputs, grad, start, stop, dtype)[0]
            expected[start, stop] = (eager, truth)
    given = {"grad": grad, "lse": lse, "delta": delta}
    changed: dict[str, Any] = {} if functions is None else {"functions": functions}
    size = largest(*(x for pair in expected.values() for x in pair[1].values()))
    for seed in seeds:
        # Of an odd seed, heads of one tensor.
        joined = seed % 2 == 1
        found = simulate_backward(inputs, given, launch, seed=seed, joined=joined, **changed)
        for name in NAMES:
            ours = torch.cat([found[name][start:stop] for start, stop in expected]).to(dtype)
            by_eager, true = (
                torch.cat([pair[place][name] for pair in expected.values()]) for place in (0, 1)
            )
            terms = max(stop - start for start, stop in expected) * query.shape[1]
            assert_within_budget(ours, by_eager, true, name, terms=terms, size=size)


WAYS = [
    (GLUON_BACKWARD_SHARED, SHORT_LENGTHS, 2),
    (GLUON_BACKWARD_SCRATCH, LENGTHS, 2),
    (GLUON_BACKWARD_SCRATCH, LENGTHS, 1),
]
DTYPES = (torch.float16, torch.bfloat16)


@pytest.mark.parametrize(
    ("launch", "lengths", "key_heads", "dtype", "seeds"),
    [
        *((*way, DTYPES[place % 2], [place]) for place, way in enumerate(WAYS)),
        *(
            pytest.param(*way, dtype, seeds, marks=pytest.mark.exhaustive)
            for way in WAYS
            for dtype, seeds in zip(DTYPES, (range(40), range(2)), strict=True)
        ),
    ],
)
def test_any_order_of_its_warps_gives_the_gradients(
    launch: GluonBackwardLaunch,
    lengths: list[int],
    key_heads: int,
    dtype: torch.dtype,
    seeds: Iterable[int],
) -> None:
    check(with_key_heads(draw(lengths, 64, dtype, BAD), key_heads), launch, seeds)


def test_every_run_has_the_same_bits() -> None:
    inputs = with_key_heads(draw([300, 77], 64, torch.float16, {}), 2)
    query = inputs.query
    statistics = torch.zeros(query.shape[1], len(query))
    given = {"grad": query, "lse": statistics + 9.0, "delta": statistics}
    runs = [
        simulate_backward(inputs, given, launch, seed=seed)
        for launch in (GLUON_BACKWARD_SHARED, GLUON_BACKWARD_SCRATCH)
        for seed in SEEDS
    ]
    for run in runs[1:]:
        assert all(torch.equal(run[name], runs[0][name]) for name in NAMES)


FAULTS = {
    "a consumer does not wait for dS": (
        "mbarrier.wait(ds_ready.index(ME), ds_phase)",
        "pass",
    ),
    "one consumer sums another's rows": (
        "owner = group * num_blocks + row_at // 64 & 1",
        "owner = group * num_blocks + row_at // 64 + key_at // 128 & 1",
    ),
    "dS is multiplied before the other consumer stored its half": (
        "mbarrier.init(ds_ready.index(consumer), count=2)",
        "mbarrier.init(ds_ready.index(consumer), count=1)",
    ),
    "dS is not fenced": ("fence_async_shared()", "pass"),
    "queries are given back while they are read": (
        "mbarrier.arrive(rows_empty.index(stage), count=1)",
        "pass",
        "grad_key = warpgroup_mma(left",
        "mbarrier.arrive(rows_empty.index(stage), count=1); grad_key = warpgroup_mma(left",
    ),
    "keys are given back before the last of dQ": (
        "mbarrier.arrive(keys_empty, count=1)",
        "pass",
        "if owner == ME:",
        "if row_at + 64 >= length and group + 1 == GROUP: mbarrier.arrive(keys_empty, count=1)\n"
        "                if owner == ME:",
    ),
    "the neighbour's keys are not cleared": (
        "clear_rows(first, inside, BLOCK_ROWS, HEAD_DIM)",
        "pass",
    ),
    "the neighbour's gradients are not cleared": (
        "clear_rows(second, inside, BLOCK_ROWS, HEAD_DIM)",
        "pass",
    ),
    "the neighbour's keys are not masked": (
        "gl.expand_dims(key_at + keys, 1) < length",
        "length > 0",
    ),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_is_found(fault: str) -> None:
    functions = functions_of(*BACKWARD_MODULES, change=replaced(FAULTS[fault]))
    inputs = with_key_heads(draw(LENGTHS, 64, torch.float16, BAD), 1)
    with pytest.raises(AssertionError):
        check(inputs, GLUON_BACKWARD_SCRATCH, SEEDS, functions)
