"""Layer and RMS norm, with residual add and dropout, within the numeric budget."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest
import torch
import torch.nn.functional as F  # noqa: N812

from encoder_engine import ops
from encoder_engine.errors import ImplementationError, ShapeError
from encoder_engine.ops import gpu, registry
from encoder_engine.ops.layer_norm import WIDEST_TRITON, LayerNormFacts
from tests.ops.cases import (
    DEVICES,
    DTYPES,
    dtype_id,
    implementations,
    refusal,
    rows,
    skip_if_refused,
    too_slow,
)
from tests.ops.compare import compare
from tests.selection import unless

Outputs = tuple[torch.Tensor, ...]
EPSILON = {"layer_norm": 1e-12, "rms_norm": 1e-6}
NORMS = list(EPSILON)
HELD = [(norm, by) for norm in NORMS for by in implementations(norm)]
EVERY = [(norm, by) for norm in NORMS for by in [*implementations(norm), "reference"]]
# The C++ kernels are for inference.
TRAINED = [(norm, by) for norm, by in EVERY if by != "native"]


def normalise(
    norm: str,
    x: torch.Tensor,
    weight: torch.Tensor,
    bias: torch.Tensor | None = None,
    residual: torch.Tensor | None = None,
    *,
    by: str | None = None,
    epsilon: float | None = None,
    dropout: float = 0.0,
) -> Outputs:
    """Call either norm; return what it normalises to, and the sum."""
    epsilon = EPSILON[norm] if epsilon is None else epsilon
    if norm == "layer_norm":
        return ops.layer_norm(
            x, weight, bias, epsilon=epsilon, residual_TD=residual, dropout=dropout,
            return_sum=True, implementation=by,
        )  # fmt: skip
    return ops.rms_norm(
        x, weight, epsilon=epsilon, residual_TD=residual, dropout=dropout, return_sum=True,
        implementation=by,
    )  # fmt: skip


def eager(
    norm: str,
    x: torch.Tensor,
    weight: torch.Tensor,
    bias: torch.Tensor | None = None,
    residual: torch.Tensor | None = None,
) -> Outputs:
    x = x if residual is None else x + residual
    if norm == "layer_norm":
        return F.layer_norm(x, weight.shape, weight, bias, EPSILON[norm]), x
    return F.rms_norm(x, weight.shape, weight, EPSILON[norm]), x


def refused(
    norm: str, implementation: str, dtype: torch.dtype, device: str, num_rows: int, width: int
) -> str | None:
    facts = LayerNormFacts(device=device, dtype=dtype_id(dtype), requires_grad=True, width=width)
    return refusal(norm, implementation, facts) or too_slow(implementation, num_rows, device)


@unless(refused)
@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize(("norm", "implementation"), HELD)
@pytest.mark.parametrize("dtype", DTYPES, ids=dtype_id)
@pytest.mark.parametrize(
    ("num_rows", "width"),
    [(0, 24), (1, 1), (1, 16), (63, 1), (63, 37), (63, 1000), (507, 24), (507, 384), (3, 4096)],
)
@pytest.mark.parametrize("with_residual", [False, True], ids=["alone", "residual"])
@pytest.mark.parametrize("with_sum", [False, True], ids=["", "sum"])
def test_outputs_and_gradients_are_within_budget(
    num_rows: int,
    width: int,
    dtype: torch.dtype,
    norm: str,
    implementation: str,
    device: str,
    with_residual: bool,
    with_sum: bool,
) -> None:
    draw = partial(rows, dtype=dtype, device=device)
    inputs = {"x": 3 * draw(num_rows, width, seed=0) + 1, "weight": draw(width, seed=1)}
    if norm == "layer_norm":
        inputs["bias"] = draw(width, seed=2)
    if with_residual:
        inputs["residual"] = draw(num_rows, width, seed=3)

    def run(
        x: torch.Tensor,
        weight: torch.Tensor,
        bias: torch.Tensor | None = None,
        residual: torch.Tensor | None = None,
        *,
        by: str,
    ) -> Outputs:
        return normalise(norm, x, weight, bias, residual, by=by)[: 1 + with_sum]

    compare(
        partial(run, by=implementation),
        lambda **tensors: eager(norm, **tensors)[: 1 + with_sum],
        partial(run, by="reference"),
        inputs,
        terms=width + num_rows,
    )


@pytest.mark.parametrize(("norm", "implementation"), HELD)
def test_the_sum_is_what_was_normalised(norm: str, implementation: str) -> None:
    x, residual, weight = rows_like(5), rows_like(6), torch.ones(24)
    output, summed = normalise(norm, x, weight, None, residual, by=implementation)
    assert torch.equal(summed, x + residual)
    again, alone = normalise(norm, summed, weight, by=implementation)
    assert torch.equal(alone, summed)
    assert torch.equal(again, output)


@pytest.mark.parametrize(("norm", "implementation"), TRAINED)
def test_a_gradient_of_the_sum_alone_passes_through(norm: str, implementation: str) -> None:
    x, residual = rows_like(5).requires_grad_(), rows_like(6).requires_grad_()
    weight = torch.ones(24, requires_grad=True)
    _, summed = normalise(norm, x, weight, None, residual, by=implementation)
    weights = rows_like(7)
    grads = torch.autograd.grad(summed, (x, residual), weights)
    assert torch.equal(grads[0], weights)
    assert torch.equal(grads[1], weights)


@pytest.mark.parametrize(("norm", "implementation"), TRAINED)
def test_dropout_drops_the_branch_alone_and_backward_the_same_elements(
    norm: str, implementation: str
) -> None:
    torch.manual_seed(0)
    x = torch.ones(128, 64, requires_grad=True)
    residual = rows(128, 64, seed=1, dtype=torch.float32, device="cpu").requires_grad_()
    weight = torch.ones(64)
    output, summed = normalise(norm, x, weight, None, residual, by=implementation, dropout=0.25)
    branch = (summed - residual).detach()
    kept = branch > 0.5
    torch.testing.assert_close(branch, kept / 0.75)
    error = (0.25 * 0.75 / x.numel()) ** 0.5
    assert abs(kept.float().mean().item() - 0.75) < 5 * error
    # What was normalised is the sum that was dropped from, and its gradient reaches both.
    again = normalise(norm, summed.detach(), weight, by="reference")[0]
    torch.testing.assert_close(output, again)
    grad_x, grad_residual = torch.autograd.grad(output, (x, residual), branch + residual.detach())
    torch.testing.assert_close(grad_x, grad_residual * kept / 0.75)


@pytest.mark.parametrize(("norm", "implementation"), TRAINED)
def test_twenty_runs_give_the_same_bits(norm: str, implementation: str) -> None:
    x, residual = rows_like(5).requires_grad_(), rows_like(6).requires_grad_()
    weight = rows(24, seed=7, dtype=torch.float32, device="cpu").requires_grad_()
    seen = set()
    for _ in range(20):
        torch.manual_seed(3)
        outputs = normalise(norm, x, weight, None, residual, by=implementation, dropout=0.5)
        total = outputs[0].square().sum() + outputs[1].sum()
        grads = torch.autograd.grad(total, (x, residual, weight))
        seen.add(tuple(t.detach().numpy().tobytes() for t in (*outputs, *grads)))
    assert len(seen) == 1


def rows_like(seed: int) -> torch.Tensor:
    """Draw the rows of a small case."""
    return rows(37, 24, seed=seed, dtype=torch.float32, device="cpu")


@pytest.mark.parametrize("implementation", [*implementations("rms_norm"), "reference"])
def test_epsilon_is_inside_the_root_and_a_row_of_zeros_stays_zeros(implementation: str) -> None:
    skip_if_refused("rms_norm", implementation, LayerNormFacts(width=2))
    x = torch.tensor([[0.0, 0.0], [3.0, 3.0]])
    output = ops.rms_norm(x, torch.ones(2), epsilon=16.0, implementation=implementation)
    torch.testing.assert_close(output, torch.tensor([[0.0, 0.0], [0.6, 0.6]]))


@pytest.mark.parametrize("norm", NORMS)
def test_rows_too_wide_for_a_program_are_refused_with_the_limit(norm: str) -> None:
    if gpu.refuse_triton(LayerNormFacts(device="cuda")) is not None:
        pytest.skip("triton is not installed")
    wide = torch.zeros(1, WIDEST_TRITON + 1)
    with pytest.raises(ImplementationError, match=str(WIDEST_TRITON)):
        normalise(norm, wide, wide[0], by="triton")


@pytest.mark.parametrize("norm", NORMS)
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
    norm: str,
    x: torch.Tensor,
    weight: torch.Tensor,
    residual: torch.Tensor | None,
    dropout: float,
) -> None:
    with pytest.raises(ShapeError):
        normalise(norm, x, weight, None, residual, dropout=dropout)


@pytest.mark.parametrize(("norm", "by"), EVERY)
def test_the_residual_stream_has_the_requested_dtype(norm: str, by: str) -> None:
    skip_if_refused(norm, by, LayerNormFacts(width=30))
    shared: dict[str, Any] = {"dtype": torch.float32, "device": "cpu"}
    x, residual = (rows(9, 30, seed=seed, **shared) for seed in (1, 2))
    weight = rows(1, 30, seed=3, **shared)[0]
    with torch.autocast("cpu", torch.bfloat16):
        expected = normalise(norm, x.bfloat16(), weight, residual=residual.bfloat16(), by=by)
        with registry.residual(torch.bfloat16):
            found = normalise(norm, x, weight, residual=residual, by=by)
            with registry.residual(torch.float32):
                wide = normalise(norm, x.bfloat16(), weight, residual=residual, by=by)
        after = normalise(norm, x, weight, residual=residual, by=by)
    for ours, theirs in zip(found, expected, strict=True):
        assert ours.dtype == torch.bfloat16
        assert torch.equal(ours, theirs)
    assert {y.dtype for y in (*wide, *after)} == {torch.float32}
    with registry.residual(torch.bfloat16):
        # Without autocast there is no stream to choose.
        assert normalise(norm, x, weight, residual=residual, by=by)[0].dtype == torch.float32


@pytest.mark.parametrize(("norm", "by"), EVERY)
def test_autocast_gives_the_type_of_the_sum_as_pytorch_does(norm: str, by: str) -> None:
    skip_if_refused(norm, by, LayerNormFacts(width=30))
    shared: dict[str, Any] = {"dtype": torch.float32, "device": "cpu"}
    x, residual = (rows(9, 30, seed=seed, **shared) for seed in (1, 2))
    weight = rows(1, 30, seed=3, **shared)[0]
    half = x.bfloat16()
    expected = normalise(norm, half.float(), weight, residual=residual, by=by)
    with torch.autocast("cpu", torch.bfloat16):
        found = normalise(norm, half, weight, residual=residual, by=by)
    for ours, theirs in zip(found, expected, strict=True):
        assert ours.dtype == torch.float32
        assert torch.equal(ours, theirs)
