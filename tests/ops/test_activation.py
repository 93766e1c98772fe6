"""Bias and GELU within the numeric budget."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import pytest
import torch
import torch.nn.functional as F  # noqa: N812

from encoder_engine import ops
from encoder_engine.errors import ShapeError
from encoder_engine.ops.registry import CallFacts
from tests.ops.cases import DEVICES, DTYPES, dtype_id, implementations, refusal, rows
from tests.ops.compare import compare
from tests.selection import unless

if TYPE_CHECKING:
    from collections.abc import Callable


def refused(implementation: str, dtype: torch.dtype, device: str) -> str | None:
    facts = CallFacts(device=device, dtype=dtype_id(dtype), requires_grad=True)
    return refusal("bias_gelu", implementation, facts)


@unless(refused)
@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("implementation", implementations("bias_gelu"))
@pytest.mark.parametrize("dtype", DTYPES, ids=dtype_id)
@pytest.mark.parametrize("approximate", ["none", "tanh"])
@pytest.mark.parametrize("num_rows", [0, 1, 63, 507])
def test_output_and_gradients_are_within_budget(
    num_rows: int,
    approximate: ops.Approximation,
    dtype: torch.dtype,
    implementation: str,
    device: str,
) -> None:
    draw = partial(rows, dtype=dtype, device=device)
    inputs = {"x": 3 * draw(num_rows, 96, seed=0), "bias": draw(96, seed=1)}

    def run(x: torch.Tensor, bias: torch.Tensor, by: str) -> torch.Tensor:
        return ops.bias_gelu(x, bias, approximate=approximate, implementation=by)

    def eager(x: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
        return F.gelu(x + bias, approximate=approximate)

    compare(
        partial(run, by=implementation),
        eager,
        partial(run, by="reference"),
        inputs,
        terms=num_rows + 1,
    )


def test_far_tails_are_exact_zeros_and_identities() -> None:
    x = torch.tensor([[-60.0, -1e30, 60.0, 1e30]])
    for implementation in (*implementations("bias_gelu"), "reference"):
        output = ops.bias_gelu(x, None, implementation=implementation)
        assert output.tolist()[0][2:] == x.tolist()[0][2:]
        assert not output[0, :2].any()


def refused_for_inference(implementation: str) -> str | None:
    return refusal("bias_gelu", implementation, CallFacts(dtype="bfloat16"))


@unless(refused_for_inference)
@pytest.mark.parametrize("implementation", implementations("bias_gelu"))
@pytest.mark.parametrize("operation", [ops.bias_gelu, ops.geglu, ops.swiglu])
def test_under_autocast_the_result_has_the_inputs_dtype(
    operation: Callable[..., torch.Tensor], implementation: str
) -> None:
    x, bias = rows(5, 8, seed=0, dtype=torch.bfloat16, device="cpu"), torch.linspace(-1.0, 1.0, 8)
    with torch.autocast("cpu", torch.bfloat16):
        found = operation(x, bias, implementation=implementation)
    assert found.dtype == torch.bfloat16


@pytest.mark.parametrize(
    ("shape", "bias", "approximate"),
    [((4,), 4, "none"), ((2, 4), 3, "none"), ((2, 4), 4, "sigmoid")],
)
def test_inputs_that_do_not_fit_are_refused(
    shape: tuple[int, ...], bias: int, approximate: ops.Approximation
) -> None:
    with pytest.raises(ShapeError):
        ops.bias_gelu(torch.zeros(shape), torch.zeros(bias), approximate=approximate)
