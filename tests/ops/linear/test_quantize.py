"""Quantized rows are off by half a step, whatever computes them."""

from __future__ import annotations

import pytest
import torch

from encoder_engine import ops
from encoder_engine.errors import ImplementationError, ShapeError
from encoder_engine.ops.registry import CallFacts
from tests.ops.cases import dtype_id, implementations, rows, skip_if_refused

DTYPES = [torch.float32, torch.bfloat16]
EVERY = [*implementations("quantize_rows"), "reference"]
SHAPES = [(0, 24), (3, 0), (1, 1), (63, 37), (300, 384), (3, 4096)]
# Half a step, and what rounding the quotient, of 127 steps at most, and the scale may add.
STEP = 0.5 + 127 * 4 * torch.finfo(torch.float32).eps


def widened(quantized: torch.Tensor, scale: torch.Tensor) -> torch.Tensor:
    """Return what the bytes stand for, in float64."""
    return (quantized.double() - 128) * scale.double()[:, None]


@pytest.mark.parametrize("implementation", EVERY)
@pytest.mark.parametrize("dtype", DTYPES, ids=dtype_id)
@pytest.mark.parametrize(("num_rows", "width"), SHAPES)
def test_rows_are_off_by_half_a_step(
    num_rows: int, width: int, dtype: torch.dtype, implementation: str
) -> None:
    skip_if_refused("quantize_rows", implementation, CallFacts(dtype=dtype_id(dtype)))
    x = rows(num_rows, width, seed=0, dtype=dtype, device="cpu")
    quantized, scale = ops.quantize_rows(x, implementation=implementation)
    assert (quantized.dtype, scale.dtype) == (torch.uint8, torch.float32)
    assert quantized.shape == x.shape
    error = (widened(quantized, scale) - x.double()).abs()
    assert bool((error <= STEP * scale[:, None]).all())
    largest = x.double().abs().amax(1) if width else torch.full((num_rows,), 127.0).double()
    assert bool(((scale - largest / 127).abs() <= scale * torch.finfo(torch.float32).eps).all())


@pytest.mark.parametrize("dtype", DTYPES, ids=dtype_id)
def test_native_bytes_depend_on_no_number_of_threads(dtype: torch.dtype) -> None:
    skip_if_refused("quantize_rows", "native", CallFacts(dtype=dtype_id(dtype)))
    x = rows(700, 390, seed=0, dtype=dtype, device="cpu")
    expected = ops.quantize_rows(x, implementation="native")
    before = torch.get_num_threads()
    try:
        for num_threads in (1, 2, 5):
            torch.set_num_threads(num_threads)
            found = ops.quantize_rows(x, implementation="native")
            assert torch.equal(found[0], expected[0])
            assert torch.equal(found[1], expected[1])
    finally:
        torch.set_num_threads(before)


@pytest.mark.parametrize("implementation", EVERY)
def test_rows_without_a_scale_are_told(implementation: str) -> None:
    skip_if_refused("quantize_rows", implementation, CallFacts())
    x = torch.tensor([[0.0, 0.0], [1e-38, -1e-38], [torch.nan, 1.0], [1.0, -torch.inf], [3, -1]])
    quantized, scale = ops.quantize_rows(x, implementation=implementation)
    assert quantized[:2].tolist() == [[128, 128], [128, 128]]
    assert scale[:2].tolist() == [1.0, 1.0]
    assert scale.isnan().tolist() == [False, False, True, True, False]
    assert quantized[4].tolist() == [255, 86]


@pytest.mark.parametrize("implementation", EVERY)
@pytest.mark.parametrize("dtype", DTYPES, ids=dtype_id)
@pytest.mark.parametrize("with_residual", [False, True], ids=["alone", "residual"])
def test_a_quantized_norm_is_the_norm_and_off_by_half_a_step(
    dtype: torch.dtype, implementation: str, with_residual: bool
) -> None:
    skip_if_refused("layer_norm_quantized", implementation, CallFacts(dtype=dtype_id(dtype)))
    x, residual = (rows(63, 37, seed=s, dtype=dtype, device="cpu") for s in (0, 1))
    weight, bias = (rows(37, seed=s, dtype=dtype, device="cpu") for s in (2, 3))
    given = residual if with_residual else None
    with ops.use(implementation):
        output, quantized, scale = ops.layer_norm_quantized(
            x, weight, bias, epsilon=1e-12, residual_TD=given
        )
    truth = ops.layer_norm(
        *(x.double(), weight.double(), bias.double()),
        epsilon=1e-12,
        residual_TD=None if given is None else given.double(),
        implementation="reference",
    )
    # The norm itself, and what rounding its sums may add.
    allowed = STEP * scale[:, None] + 37 * torch.finfo(torch.float32).eps * truth.abs().max()
    assert bool(((widened(quantized, scale) - truth).abs() <= allowed).all())
    if implementation == "native":
        plain = ops.layer_norm(
            x, weight, bias, epsilon=1e-12, residual_TD=given, implementation="native"
        )
        assert torch.equal(output, plain)
    if implementation == "native" and dtype == torch.float32:
        assert torch.equal(quantized, ops.quantize_rows(output)[0])


def test_what_does_not_fit_or_wants_a_gradient_is_refused() -> None:
    with pytest.raises(ShapeError, match="T, D"):
        ops.quantize_rows(torch.zeros(3))
    with pytest.raises(ShapeError, match="weight"):
        ops.layer_norm_quantized(torch.zeros(2, 3), torch.zeros(4), None, epsilon=1e-5)
    with pytest.raises(ImplementationError, match="no gradient"):
        ops.quantize_rows(torch.zeros(2, 3, requires_grad=True))


def test_native_quantization_is_an_operator_that_traces() -> None:
    skip_if_refused("quantize_rows", "native", CallFacts())
    from encoder_engine.ops.native import quantize

    x = rows(20, 8, seed=0, dtype=torch.float32, device="cpu")
    torch.library.opcheck(quantize.quantize_operator, (x,))
    torch.library.opcheck(quantize.norm_operator, (x, x[0].clone(), None, x, 1e-6))
