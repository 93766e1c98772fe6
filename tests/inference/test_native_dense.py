"""The product of compiled encoders: within budget, bit-invariant, its weight given back exactly."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F  # noqa: N812

from encoder_engine.inference.layers import pack
from encoder_engine.models.checkpoints.stacking import to_array, to_tensor
from encoder_engine.models.linear import Linear
from encoder_engine.ops.testing import assert_within_budget, largest
from tests.inference.native_module import FUNCTIONS, NativeLinear
from tests.ops.cases import dtype_id, rows

DTYPES = [torch.float32, torch.bfloat16]


def draw(*shape: int, seed: int, dtype: torch.dtype) -> torch.Tensor:
    return rows(*shape, seed=seed, dtype=dtype, device="cpu")


def native_layer(weight: torch.Tensor, bias: torch.Tensor | None = None) -> NativeLinear:
    outer, inner = weight.shape
    plain = Linear(inner, outer, bias=bias is not None, device="meta")
    plain.weight = torch.nn.Parameter(weight)
    if bias is not None:
        plain.bias = torch.nn.Parameter(bias)
    return NativeLinear(plain)


@pytest.mark.parametrize("gelu", FUNCTIONS)
@pytest.mark.parametrize("with_bias", [True, False])
@pytest.mark.parametrize("dtype", DTYPES, ids=dtype_id)
@pytest.mark.parametrize("num_rows", [0, 1, 63, 507])
@pytest.mark.parametrize(("inner", "outer"), [(1, 1), (37, 21), (384, 96), (131, 200), (2100, 70)])
def test_output_is_within_budget(
    num_rows: int, inner: int, outer: int, dtype: torch.dtype, with_bias: bool, gelu: str | None
) -> None:
    x = draw(num_rows, inner, seed=0, dtype=dtype)
    weight = draw(outer, inner, seed=1, dtype=dtype)
    bias = draw(outer, seed=2, dtype=dtype) if with_bias else None
    eager = F.linear(x, weight, bias)
    truth = F.linear(x.double(), weight.double(), None if bias is None else bias.double())
    if gelu is not None:
        eager, truth = F.gelu(eager, approximate=gelu), F.gelu(truth, approximate=gelu)
    found = native_layer(weight, bias)(x, gelu=gelu)
    size = max(largest(truth), largest(x) * largest(weight))
    assert_within_budget(found, eager, truth, terms=inner + 1, size=size)


@pytest.mark.parametrize("dtype", DTYPES, ids=dtype_id)
@pytest.mark.parametrize("num_threads", [1, 2])
@pytest.mark.parametrize("gelu", [None, "none"])
@pytest.mark.parametrize(
    ("inner", "outer"), [(384, 1152), (384, 1536), (1536, 384), (37, 111), (3072, 768), (768, 3072)]
)
def test_a_row_is_bit_equal_whatever_comes_with_it(
    inner: int, outer: int, gelu: str | None, num_threads: int, dtype: torch.dtype
) -> None:
    x = draw(520, inner, seed=0, dtype=dtype)
    run = partial(native_layer(draw(outer, inner, seed=1, dtype=dtype)), gelu=gelu)
    before = torch.get_num_threads()
    together = run(x)
    torch.set_num_threads(num_threads)
    try:
        for size in (1, 2, 3, 7, 16, 33, 100, 511):
            parts = [run(p) for p in torch.split(x, size)]
            assert torch.equal(torch.cat(parts), together), f"{size} rows at a time"
    finally:
        torch.set_num_threads(before)


@pytest.mark.parametrize("dtype", DTYPES, ids=dtype_id)
@pytest.mark.parametrize("shape", [(100, 37), (3, 2), (64, 96), (129, 1)])
def test_a_packed_weight_is_given_back_bit_for_bit(
    shape: tuple[int, int], dtype: torch.dtype
) -> None:
    weight, bias = draw(*shape, seed=3, dtype=dtype), draw(shape[0], seed=4, dtype=dtype)
    layer = pack(to_array(weight), to_array(bias))
    assert (layer.width, layer.depth) == shape
    found = {name: to_tensor(array) for name, array in layer.parameters().items()}
    assert torch.equal(found["weight"], weight)
    assert torch.equal(found["bias"], bias)
    strided = pack(to_array(weight.T.contiguous().T), None)
    assert torch.equal(to_tensor(strided.parameters()["weight"]), weight)


def test_a_small_product_ends_no_thread_that_a_large_one_needs() -> None:
    # GCC's OpenMP runtime keeps as many threads as the last team had: others would be started anew.
    tasks = Path("/proc/self/task")
    if not tasks.is_dir():
        pytest.skip("the system does not list a process's threads")
    layer = native_layer(torch.randn(1024, 1024))
    before = torch.get_num_threads()
    torch.set_num_threads(4)
    try:
        layer(torch.randn(500, 1024))
        there = set(tasks.iterdir())
        for _ in range(5):
            layer(torch.randn(3, 1024))
            layer(torch.randn(500, 1024))
            assert set(tasks.iterdir()) <= there
    finally:
        torch.set_num_threads(before)
