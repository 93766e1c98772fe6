"""RMS norm, with residual add and dropout, within the numeric budget."""

from __future__ import annotations

from functools import partial

import pytest
import torch
import torch.nn.functional as F  # noqa: N812

from encoder_engine import ops
from encoder_engine.errors import ImplementationError, ShapeError
from encoder_engine.ops import gpu
from encoder_engine.ops.layer_norm import WIDEST_TRITON, LayerNormFacts
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

EPSILON = 1e-6


def eager(
    x: torch.Tensor, weight: torch.Tensor, residual: torch.Tensor | None = None
) -> torch.Tensor:
    x = x if residual is None else x + residual
    return F.rms_norm(x, weight.shape, weight, EPSILON)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("implementation", implementations("rms_norm"))
@pytest.mark.parametrize("dtype", DTYPES, ids=dtype_id)
@pytest.mark.parametrize(
    ("num_rows", "width"), [(0, 24), (1, 16), (63, 1), (63, 37), (507, 384), (3, 4096)]
)
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
    skip_if_refused("rms_norm", implementation, facts)
    skip_if_too_slow(implementation, num_rows, device)
    draw = partial(rows, dtype=dtype, device=device)
    inputs = {"x": 3 * draw(num_rows, width, seed=0) + 1, "weight": draw(width, seed=1)}
    if with_residual:
        inputs["residual"] = draw(num_rows, width, seed=3)

    def run(
        x: torch.Tensor,
        weight: torch.Tensor,
        residual: torch.Tensor | None = None,
        by: str | None = None,
    ) -> torch.Tensor:
        return ops.rms_norm(x, weight, epsilon=EPSILON, residual_TD=residual, implementation=by)

    compare(
        partial(run, by=implementation),
        eager,
        partial(run, by="reference"),
        inputs,
        terms=width + num_rows,
    )


@pytest.mark.parametrize("implementation", [*implementations("rms_norm"), "reference"])
def test_epsilon_is_inside_the_root_and_a_row_of_zeros_stays_zeros(implementation: str) -> None:
    x = torch.tensor([[0.0, 0.0], [3.0, 3.0]])
    output = ops.rms_norm(x, torch.ones(2), epsilon=16.0, implementation=implementation)
    torch.testing.assert_close(output, torch.tensor([[0.0, 0.0], [0.6, 0.6]]))


@pytest.mark.parametrize("implementation", [*implementations("rms_norm"), "reference"])
def test_dropout_falls_on_the_branch_and_not_on_the_residual(implementation: str) -> None:
    torch.manual_seed(0)
    branch, residual = torch.full((64, 256), 5.0), torch.full((64, 256), 1000.0)
    output = ops.rms_norm(
        branch,
        torch.ones(256),
        epsilon=1e-6,
        residual_TD=residual,
        dropout=0.5,
        implementation=implementation,
    )
    # 1010 where kept, 1000 where dropped: two values in each row, both near one.
    assert all(len(row.unique()) == 2 for row in output)
    assert 0.0 < float((output - 1.0).abs().max()) < 0.02


def test_rows_too_wide_for_a_program_are_refused_with_the_limit() -> None:
    if gpu.refuse_triton(LayerNormFacts(device="cuda")) is not None:
        pytest.skip("triton is not installed")
    wide = torch.zeros(1, WIDEST_TRITON + 1)
    with pytest.raises(ImplementationError, match=str(WIDEST_TRITON)):
        ops.rms_norm(wide, wide[0], epsilon=1e-6, implementation="triton")


@pytest.mark.parametrize(
    ("x", "weight", "residual", "dropout"),
    [
        (torch.zeros(2, 3, 4), torch.ones(4), None, 0.0),
        (torch.zeros(2, 3), torch.ones(4), None, 0.0),
        (torch.zeros(2, 4), torch.ones(4), torch.zeros(1, 4), 0.0),
        (torch.zeros(2, 4), torch.ones(4), None, 1.0),
    ],
)
def test_inputs_that_do_not_fit_are_refused(
    x: torch.Tensor, weight: torch.Tensor, residual: torch.Tensor | None, dropout: float
) -> None:
    with pytest.raises(ShapeError):
        ops.rms_norm(x, weight, epsilon=1e-5, residual_TD=residual, dropout=dropout)
