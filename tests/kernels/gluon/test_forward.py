"""Attention in Gluon, simulated, is right in any order that its warps may run in."""

from __future__ import annotations

import math
from itertools import pairwise
from typing import TYPE_CHECKING

import pytest
import torch
from encoder_engine.kernels.attention.config import GLUON_LAUNCHES, GluonLaunch

from encoder_engine.ops.testing import assert_within_budget, rows
from tests.kernels.gluon.language import functions_of
from tests.kernels.gluon.launching import MODULES, Inputs, simulate
from tests.kernels.gluon.machine import SimulationError

if TYPE_CHECKING:
    import ast
    from collections.abc import Callable, Iterable

    from torch import Tensor

# Whole blocks of keys and ragged ones, a lone block and a lone row, and no row at all.
LENGTHS = [200, 64, 130, 1, 0, 300, 128, 700]
# What is NaN or infinite there shall not be seen elsewhere.
BAD = {1: math.nan, 5: math.inf, 6: math.nan}
SHAPES = [
    (head_dim, launch._replace(turns=turns))
    for (head_dim, _), launch in GLUON_LAUNCHES.items()
    for turns in (False, True)[: launch.num_consumers]
]
DTYPES = (torch.float16, torch.bfloat16)
# Each is to be found under one of the seeds.
SEEDS = range(6)


def draw(lengths: list[int], head_dim: int, dtype: torch.dtype, bad: dict[int, float]) -> Inputs:
    cu_seqlens = [0, *torch.tensor(lengths).cumsum(0).tolist()]
    query, key, value = (
        rows(cu_seqlens[-1], heads, head_dim, seed=seed, dtype=dtype, device="cpu")
        for seed, heads in enumerate((2, 1, 1))
    )
    for sequence, x in bad.items():
        for tensor in (query, key, value):
            tensor[cu_seqlens[sequence] : cu_seqlens[sequence + 1]] = x
    scale = head_dim**-0.5
    return Inputs(query=query, key=key, value=value, cu_seqlens=cu_seqlens, scale=scale)


def attend(inputs: Inputs, start: int, stop: int, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """Return a sequence's output and log2-sum-exp2 by plain products."""
    query, key, value = (
        x[start:stop].transpose(0, 1).to(dtype) for x in (inputs.query, inputs.key, inputs.value)
    )
    scores = query @ key.transpose(1, 2) * inputs.scale
    lse = torch.logsumexp(scores.to(torch.promote_types(dtype, torch.float32)), -1) / math.log(2)
    return (torch.softmax(scores, -1) @ value).transpose(0, 1), lse


def check(inputs: Inputs, launch: GluonLaunch, seed: int, bad: dict[int, float]) -> None:
    output, lse = simulate(inputs, launch, num_programs=3, seed=seed)
    assert_right(inputs, output, lse, bad)


def assert_right(inputs: Inputs, output: Tensor, lse: Tensor, bad: dict[int, float]) -> None:
    dtype = inputs.query.dtype
    for sequence, (start, stop) in enumerate(pairwise(inputs.cu_seqlens)):
        if sequence in bad or start == stop:
            continue
        eager, truth = (attend(inputs, start, stop, x) for x in (dtype, torch.float64))
        found = (output[start:stop].to(dtype), lse[:, start:stop])
        for ours, theirs, true, name in zip(found, eager, truth, ("output", "lse"), strict=True):
            assert_within_budget(ours, theirs, true, f"{name} of {sequence}", terms=stop - start)


@pytest.mark.parametrize(
    ("head_dim", "launch", "dtype", "seeds"),
    [
        *((*shape, DTYPES[place % 2], [place]) for place, shape in enumerate(SHAPES)),
        *(
            pytest.param(*shape, dtype, seeds, marks=pytest.mark.exhaustive)
            for shape in SHAPES
            for dtype, seeds in zip(DTYPES, (range(40), range(3)), strict=True)
        ),
    ],
)
def test_any_order_of_its_warps_gives_the_output(
    head_dim: int, launch: GluonLaunch, dtype: torch.dtype, seeds: Iterable[int]
) -> None:
    inputs = draw(LENGTHS, head_dim, dtype, BAD)
    for seed in seeds:
        check(inputs, launch, seed, BAD)


@pytest.mark.parametrize("lengths", [[1], [64], [128], [129], [256, 256]])
def test_one_length_alone_is_right(lengths: list[int]) -> None:
    launch = GLUON_LAUNCHES[64, 128]
    check(draw(lengths, 64, torch.float16, {}), launch, 0, {})


# What is right, and what is wrong instead, statements or parts of them by turns.
FAULTS = {
    "the room for keys is awaited in the wrong phase": (
        "key_stage, key_phase = (0, 1)",
        "key_stage, key_phase = (0, 0)",
    ),
    "the room for values is taken before it is free": (
        "mbarrier.wait(value_empty.index(value_stage), value_phase)",
        "pass",
    ),
    "the phase of the ragged block does not change": ("tail_phase ^= 1", "pass"),
    "the phase of the queries does not change": ("query_phase ^= 1", "query_phase ^= 0"),
    "phases do not change where the ring begins anew": (
        "gl.where(wraps, phase ^ 1, phase)",
        "phase",
    ),
    "nobody says that the queries were read": ("mbarrier.arrive(query_empty, count=1)", "pass"),
    "nobody says that values were read": (
        "mbarrier.arrive(value_empty.index(stage), count=1)",
        "pass",
    ),
    "keys are given back while they are read": (
        "mbarrier.arrive(key_empty.index(next_stage), count=1)",
        "pass",
        "scores_under_way = warpgroup_mma(query",
        "mbarrier.arrive(key_empty.index(next_stage), count=1); "
        "scores_under_way = warpgroup_mma(query",
    ),
    "values are multiplied before they are there": (
        "mbarrier.wait(value_ready.index(stage), phase)",
        "pass",
    ),
    "a consumer keeps its turn": ("mbarrier.arrive(turn.index(1 - ME), count=1)", "pass"),
    "the cleared rows are not fenced": ("fence_async_shared()", "pass"),
    "the neighbour's rows are not cleared": (
        "clear_rows(here, length - value_at, BLOCK_KEYS, HEAD_DIM)",
        "pass",
    ),
    "the ragged block is not masked": ("gl.expand_dims(columns, 0) < ragged", "ragged > 0"),
    "a barrier expects too few bytes": (
        "CONSUMERS * query_rows.block_type.nbytes",
        "query_rows.block_type.nbytes",
    ),
}
WRONG_NUMBERS = {"the neighbour's rows are not cleared", "the ragged block is not masked"}


def replaced(pairs: tuple[str, ...]) -> Callable[[str], str]:
    """Return a function that replaces parts of a text, each of which has to be there."""

    def change(text: str) -> str:
        parts = iter(pairs)
        for right, wrong in zip(parts, parts, strict=True):
            assert right in text, right
            text = text.replace(right, wrong)
        return text

    return change


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_is_found(fault: str) -> None:
    functions = functions_of(*MODULES, change=replaced(FAULTS[fault]))
    with pytest.raises(AssertionError) as found:
        run_changed(functions)
    # What is known before a wrong number is: who waits for what, or who touches what meanwhile.
    assert isinstance(found.value, SimulationError) != (fault in WRONG_NUMBERS), found.value


def run_changed(functions: dict[str, ast.FunctionDef]) -> None:
    inputs, launch = draw(LENGTHS, 64, torch.float16, BAD), GLUON_LAUNCHES[64, 128]
    for seed in SEEDS:
        output, lse = simulate(
            inputs, launch._replace(turns=True), num_programs=2, seed=seed, functions=functions
        )
        assert_right(inputs, output, lse, BAD)
