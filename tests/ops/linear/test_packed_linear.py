"""The dense layer with a packed weight: within budget, bit-invariant, and honest about its use."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F  # noqa: N812

from encoder_engine import ops
from encoder_engine.errors import ImplementationError, ShapeError
from encoder_engine.ops.packed_linear import PackedFacts, packed_linear
from encoder_engine.ops.registry import CallFacts
from encoder_engine.ops.testing import assert_within_budget, largest
from tests.ops.cases import dtype_id, refusal, rows, skip_if_refused
from tests.selection import unless

IMPLEMENTATIONS = ["native", "aten", "reference"]
DTYPES = [torch.float32, torch.bfloat16]
GELUS: list[ops.Approximation | None] = [None, "none", "tanh"]


def draw(*shape: int, seed: int, dtype: torch.dtype) -> torch.Tensor:
    return rows(*shape, seed=seed, dtype=dtype, device="cpu")


def facts_of(dtype: torch.dtype) -> PackedFacts:
    return PackedFacts(dtype=str(dtype).removeprefix("torch."))


def refused(implementation: str, dtype: torch.dtype) -> str | None:
    layout = "native" if implementation == "native" else "aten"
    return refusal("packed_linear", implementation, facts_of(dtype)) or refusal(
        "packed_linear", layout, facts_of(dtype)
    )


def without_promise(implementation: str, dtype: torch.dtype) -> str | None:
    if implementation == "aten" and dtype == torch.bfloat16:
        return "oneDNN promises it for float32 alone"
    return refused(implementation, dtype)


@unless(refused)
@pytest.mark.parametrize("implementation", IMPLEMENTATIONS)
@pytest.mark.parametrize("gelu", GELUS)
@pytest.mark.parametrize("with_bias", [True, False])
@pytest.mark.parametrize("dtype", DTYPES, ids=dtype_id)
@pytest.mark.parametrize("num_rows", [0, 1, 63, 507])
@pytest.mark.parametrize(("inner", "outer"), [(1, 1), (37, 21), (384, 96), (131, 200), (2100, 70)])
def test_output_is_within_budget(
    num_rows: int,
    inner: int,
    outer: int,
    dtype: torch.dtype,
    with_bias: bool,
    gelu: ops.Approximation | None,
    implementation: str,
) -> None:
    x = draw(num_rows, inner, seed=0, dtype=dtype)
    weight = draw(outer, inner, seed=1, dtype=dtype)
    bias = draw(outer, seed=2, dtype=dtype) if with_bias else None
    layout = "native" if implementation == "native" else "aten"
    packed = ops.pack_weight(weight, bias, implementation=layout)
    eager = F.linear(x, weight, bias)
    truth = F.linear(x.double(), weight.double(), None if bias is None else bias.double())
    if gelu is not None:
        eager, truth = F.gelu(eager, approximate=gelu), F.gelu(truth, approximate=gelu)
    found = packed_linear(x, packed, gelu=gelu, implementation=implementation)
    size = max(largest(truth), largest(x) * largest(weight))
    assert_within_budget(found, eager, truth, terms=inner + 1, size=size)


@unless(without_promise)
@pytest.mark.parametrize("implementation", ["native", "aten"])
@pytest.mark.parametrize("dtype", DTYPES, ids=dtype_id)
@pytest.mark.parametrize("num_threads", [1, 2])
@pytest.mark.parametrize("gelu", [None, "none"])
@pytest.mark.parametrize(
    ("inner", "outer"), [(384, 1152), (384, 1536), (1536, 384), (37, 111), (3072, 768), (768, 3072)]
)
def test_a_row_is_bit_equal_whatever_comes_with_it(
    inner: int,
    outer: int,
    gelu: ops.Approximation | None,
    num_threads: int,
    dtype: torch.dtype,
    implementation: str,
) -> None:
    x = draw(700, inner, seed=0, dtype=dtype)
    weight = draw(outer, inner, seed=1, dtype=dtype)
    packed = ops.pack_weight(weight, implementation=implementation)
    run = partial(ops.packed_linear, weight=packed, gelu=gelu)
    before = torch.get_num_threads()
    together = run(x)
    torch.set_num_threads(num_threads)
    try:
        for size in (1, 2, 3, 7, 16, 33, 100, 511):
            parts = [run(p) for p in torch.split(x, size)]
            assert torch.equal(torch.cat(parts), together), f"{size} rows at a time"
    finally:
        torch.set_num_threads(before)


@unless(refused)
@pytest.mark.parametrize("implementation", ["native", "aten"])
@pytest.mark.parametrize("dtype", DTYPES, ids=dtype_id)
@pytest.mark.parametrize("shape", [(100, 37), (3, 2), (64, 96), (129, 1)])
def test_unpacking_gives_the_weight_back_bit_for_bit(
    shape: tuple[int, int], dtype: torch.dtype, implementation: str
) -> None:
    weight = draw(*shape, seed=3, dtype=dtype)
    packed = ops.pack_weight(weight, implementation=implementation)
    assert (packed.layout, packed.shape) == (implementation, shape)
    assert torch.equal(packed.unpack(), weight)


def test_native_products_are_an_operator_that_traces() -> None:
    skip_if_refused("packed_linear", "native", CallFacts())
    from encoder_engine.ops.native import packed_linear as native

    packed = ops.pack_weight(torch.randn(6, 8), torch.randn(6), implementation="native")
    torch.library.opcheck(native.operator, (torch.randn(5, 8), packed.content, 6, "tanh"))


def test_a_small_product_ends_no_thread_that_a_large_one_needs() -> None:
    # GCC's OpenMP runtime keeps as many threads as the last team had: others would be started anew.
    skip_if_refused("packed_linear", "native", CallFacts())
    tasks = Path("/proc/self/task")
    if not tasks.is_dir():
        pytest.skip("the system does not list a process's threads")
    packed = ops.pack_weight(torch.randn(1024, 1024), implementation="native")
    before = torch.get_num_threads()
    torch.set_num_threads(4)
    try:
        packed_linear(torch.randn(500, 1024), packed)
        there = set(tasks.iterdir())
        for _ in range(5):
            packed_linear(torch.randn(3, 1024), packed)
            packed_linear(torch.randn(500, 1024), packed)
            assert set(tasks.iterdir()) <= there
    finally:
        torch.set_num_threads(before)


def test_what_cannot_be_packed_is_refused() -> None:
    with pytest.raises(ImplementationError, match="float32 and bfloat16, not float64"):
        ops.pack_weight(torch.zeros(3, 2, dtype=torch.float64))
    with pytest.raises(ShapeError, match=r"bias \[N\]"):
        ops.pack_weight(torch.zeros(3, 2), torch.zeros(2))


def test_input_that_does_not_fit_is_refused() -> None:
    packed = ops.pack_weight(torch.zeros(3, 2))
    with pytest.raises(ShapeError, match="has 5 features"):
        ops.packed_linear(torch.zeros(1, 5), packed)
    with pytest.raises(ShapeError, match=r"packed weight torch\.float32"):
        ops.packed_linear(torch.zeros(1, 2, dtype=torch.bfloat16), packed)
    with pytest.raises(ShapeError, match="approximate"):
        ops.packed_linear(torch.zeros(1, 2), packed, gelu="erf")  # type: ignore[arg-type]
    with pytest.raises(ImplementationError, match="for inference"):
        ops.packed_linear(torch.zeros(1, 2, requires_grad=True), packed, implementation="aten")
