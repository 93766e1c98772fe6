"""Layer norm, with residual add and dropout, within the numeric budget."""

from __future__ import annotations

from functools import partial

import pytest
import torch
import torch.nn.functional as F  # noqa: N812

from encoder_engine import ops
from encoder_engine.errors import ShapeError
from encoder_engine.ops.layer_norm import LayerNormFacts
from tests.ops.cases import (
    DEVICES,
    DTYPES,
    dtype_id,
    implementations,
    rows,
    skip_if_refused,
    skip_if_too_slow,
)
from tests.ops.compare import compare

EPSILON = 1e-12


def eager(
    x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor, residual: torch.Tensor | None = None
) -> torch.Tensor:
    x = x if residual is None else x + residual
    return F.layer_norm(x, weight.shape, weight, bias, EPSILON)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("implementation", implementations("layer_norm"))
@pytest.mark.parametrize("dtype", DTYPES, ids=dtype_id)
@pytest.mark.parametrize("num_rows", [0, 1, 63, 507])
@pytest.mark.parametrize("width", [1, 24, 384, 1000])
@pytest.mark.parametrize("with_residual", [False, True], ids=["alone", "residual"])
def test_output_and_gradients_are_within_budget(
    num_rows: int,
    width: int,
    dtype: torch.dtype,
    implementation: str,
    device: str,
    with_residual: bool,
) -> None:
    facts = LayerNormFacts(device=device, dtype=dtype_id(dtype), requires_grad=True, width=width)
    skip_if_refused("layer_norm", implementation, facts)
    skip_if_too_slow(implementation, num_rows, device)
    draw = partial(rows, dtype=dtype, device=device)
    inputs = {"x": 3 * draw(num_rows, width, seed=0) + 1}
    inputs |= {"weight": draw(width, seed=1), "bias": draw(width, seed=2)}
    if with_residual:
        inputs["residual"] = draw(num_rows, width, seed=3)

    def run(
        x: torch.Tensor,
        weight: torch.Tensor,
        bias: torch.Tensor,
        residual: torch.Tensor | None = None,
        by: str | None = None,
    ) -> torch.Tensor:
        return ops.layer_norm(
            x, weight, bias, epsilon=EPSILON, residual_TD=residual, implementation=by
        )

    compare(
        partial(run, by=implementation),
        eager,
        partial(run, by="reference"),
        inputs,
        terms=width + num_rows,
    )


@pytest.mark.parametrize("implementation", [*implementations("layer_norm"), "reference"])
def test_dropout_falls_on_the_branch_and_not_on_the_residual(implementation: str) -> None:
    torch.manual_seed(0)
    branch = torch.full((64, 256), 5.0)
    residual = torch.arange(256.0).repeat(64, 1)
    output = ops.layer_norm(
        branch,
        torch.ones(256),
        None,
        epsilon=1e-5,
        residual_TD=residual,
        dropout=0.5,
        implementation=implementation,
    )
    kept = ops.layer_norm(residual, torch.ones(256), None, epsilon=1e-5)
    # Kept 10.0 or dropped 0.0 against a residual of standard deviation 74: small, never erased.
    assert 0.0 < float((output - kept).abs().max()) < 0.3


@pytest.mark.parametrize(
    ("x", "weight", "residual"),
    [
        (torch.zeros(2, 3, 4), torch.ones(4), None),
        (torch.zeros(2, 3), torch.ones(4), None),
        (torch.zeros(2, 4), torch.ones(4), torch.zeros(1, 4)),
    ],
)
def test_inputs_that_do_not_fit_are_refused(
    x: torch.Tensor, weight: torch.Tensor, residual: torch.Tensor | None
) -> None:
    with pytest.raises(ShapeError):
        ops.layer_norm(x, weight, None, epsilon=1e-5, residual_TD=residual)
