"""The dense layer within the numeric budget, and independent of how many rows come together."""

from __future__ import annotations

from functools import partial

import pytest
import torch
import torch.nn.functional as F  # noqa: N812

from encoder_engine import ops
from encoder_engine.errors import ShapeError
from encoder_engine.ops.registry import Facts
from tests.ops.cases import DEVICES, DTYPES, dtype_id, implementations, rows, skip_if_refused
from tests.ops.compare import compare


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("implementation", implementations("linear"))
@pytest.mark.parametrize("dtype", DTYPES, ids=dtype_id)
@pytest.mark.parametrize("num_rows", [0, 1, 63, 507])
@pytest.mark.parametrize(("inner", "outer"), [(1, 1), (37, 21), (384, 96)])
def test_output_and_gradients_are_within_budget(
    num_rows: int, inner: int, outer: int, dtype: torch.dtype, implementation: str, device: str
) -> None:
    facts = Facts(device=device, dtype=dtype_id(dtype), requires_grad=True)
    skip_if_refused("linear", implementation, facts)
    draw = partial(rows, dtype=dtype, device=device)
    inputs = {
        "x": draw(num_rows, inner, seed=0),
        "weight": draw(outer, inner, seed=1),
        "bias": draw(outer, seed=2),
    }

    def run(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor, by: str) -> torch.Tensor:
        return ops.linear(x, weight, bias, implementation=by)

    def eager(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
        return F.linear(x, weight, bias)

    compare(
        partial(run, by=implementation),
        eager,
        partial(run, by="reference"),
        inputs,
        terms=inner + outer + num_rows,
    )


@pytest.mark.parametrize("implementation", implementations("linear"))
@pytest.mark.parametrize(("inner", "outer"), [(384, 1152), (1536, 384), (37, 111), (3072, 768)])
def test_a_row_is_bit_equal_whatever_comes_with_it(
    implementation: str, inner: int, outer: int
) -> None:
    x = rows(700, inner, seed=0, dtype=torch.float32, device="cpu")
    weight = rows(outer, inner, seed=1, dtype=torch.float32, device="cpu")
    with torch.inference_mode():
        together = ops.linear(x, weight, implementation=implementation)
        for size in (1, 2, 7, 16, 33, 100, 511):
            parts = [
                ops.linear(part, weight, implementation=implementation)
                for part in torch.split(x, size)
            ]
            assert torch.equal(torch.cat(parts), together), f"{size} rows at a time"


def test_features_that_do_not_fit_are_refused() -> None:
    with pytest.raises(ShapeError, match=r"has 767 features, weight .* expects 768"):
        ops.linear(torch.zeros(2, 767), torch.zeros(10, 768))
