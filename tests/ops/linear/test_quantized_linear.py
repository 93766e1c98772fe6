"""The dense layer in integers: exact products, within budget, and honest about its input."""

from __future__ import annotations

import importlib
from functools import partial

import pytest
import torch
import torch.nn.functional as F  # noqa: N812

from encoder_engine import ops
from encoder_engine.errors import ShapeError
from encoder_engine.ops.aten import quantized_linear as aten
from encoder_engine.ops.registry import CallFacts
from encoder_engine.ops.testing import assert_within_budget, largest
from encoder_engine.ops.weights import MOST_TERMS
from tests.ops.cases import dtype_id, rows, skip_if_refused

DTYPES = [torch.float32, torch.bfloat16]
IMPLEMENTATIONS = ["native", "aten", "reference"]
GELUS: list[ops.Approximation | None] = [None, "none", "tanh"]


def draw(*shape: int, seed: int) -> torch.Tensor:
    return rows(*shape, seed=seed, dtype=torch.float32, device="cpu")


def draw_rows(num_rows: int, width: int) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(4)
    drawn = torch.randint(1, 256, (num_rows, width), generator=generator, dtype=torch.uint8)
    return drawn, draw(num_rows, seed=5).abs() / 64


@pytest.fixture(params=[True, False], ids=["bytes", "floats"])
def with_bytes(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> bool:
    """Take the way of processors that multiply bytes, and that of those that cannot."""
    wanted = bool(request.param)
    if wanted and not aten._multiplies_bytes():
        pytest.skip("this processor cannot multiply bytes exactly")
    monkeypatch.setattr(aten, "_multiplies_bytes", lambda: wanted)
    return wanted


@pytest.mark.parametrize("gelu", GELUS)
@pytest.mark.parametrize("with_bias", [True, False])
@pytest.mark.parametrize("dtype", DTYPES, ids=dtype_id)
@pytest.mark.parametrize("num_rows", [0, 1, 63, 1111])
@pytest.mark.parametrize(("inner", "outer"), [(1, 1), (37, 21), (384, 96)])
@pytest.mark.usefixtures("with_bytes")
def test_output_is_within_budget(
    num_rows: int,
    inner: int,
    outer: int,
    dtype: torch.dtype,
    with_bias: bool,
    gelu: ops.Approximation | None,
) -> None:
    bias = draw(outer, seed=2) if with_bias else None
    weight = ops.quantize_weight(draw(outer, inner, seed=1), bias)
    x, scale = draw_rows(num_rows, inner)
    truth = ops.quantized_linear(x, scale, weight, gelu=gelu, implementation="reference")
    by_eager = F.linear((x.float() - 128) * scale[:, None], weight.dequantize(), bias)
    wide = F.linear(
        (x.double() - 128) * scale.double()[:, None],
        weight.unpack().double() * weight.scale_N.double()[:, None],
        None if bias is None else bias.double(),
    )
    if gelu is not None:
        by_eager, wide = F.gelu(by_eager, approximate=gelu), F.gelu(wide, approximate=gelu)
    for name in IMPLEMENTATIONS:
        found = ops.quantized_linear(x, scale, weight, dtype=dtype, gelu=gelu, implementation=name)
        assert_within_budget(
            found, by_eager.to(dtype), wide, name, terms=inner + 1, size=largest(wide, truth)
        )


@pytest.mark.parametrize("gelu", GELUS)
@pytest.mark.parametrize("num_rows", [0, 1, 63, 1111])
@pytest.mark.parametrize(("inner", "outer"), [(1, 1), (37, 21), (384, 96)])
@pytest.mark.parametrize("implementation", IMPLEMENTATIONS)
def test_requantized_rows_are_the_quantized_ones_of_the_result(
    implementation: str, num_rows: int, inner: int, outer: int, gelu: ops.Approximation | None
) -> None:
    weight = ops.quantize_weight(draw(outer, inner, seed=1), draw(outer, seed=2))
    x, scale = draw_rows(num_rows, inner)
    result = ops.quantized_linear(x, scale, weight, gelu=gelu, implementation=implementation)
    expected, expected_scale = ops.quantize_rows(result, implementation=implementation)
    found, found_scale = ops.requantized_linear(
        x, scale, weight, gelu=gelu, implementation=implementation
    )
    assert torch.equal(found, expected)
    assert torch.equal(found_scale, expected_scale)


@pytest.mark.usefixtures("with_bytes")
def test_products_are_exact_at_the_largest_values() -> None:
    x = torch.full((3, 3072), 255, dtype=torch.uint8)
    weight = ops.quantize_weight(torch.ones(2, 3072))
    found = ops.quantized_linear(x, torch.ones(3), weight)
    assert torch.equal(found, torch.full((3, 2), 127.0 * 3072))


@pytest.mark.usefixtures("with_bytes")
def test_products_are_exact_beyond_what_float32_sums() -> None:
    generator = torch.Generator().manual_seed(8)
    x = torch.randint(200, 256, (9, 4097), generator=generator, dtype=torch.uint8)
    steps = torch.randint(100, 128, (5, 4097), generator=generator, dtype=torch.int8)
    weight = ops.QuantizedWeight.pack(steps, torch.ones(5), None)
    expected = (x.long() - 128) @ steps.long().T
    assert expected.min() > 2**24
    found = ops.quantized_linear(x, torch.ones(9), weight, implementation="aten")
    assert torch.equal(found, expected.float())


@pytest.mark.parametrize("num_threads", [1, 2])
def test_a_row_is_bit_equal_whatever_comes_with_it(num_threads: int) -> None:
    x, scale = draw_rows(1100, 384)
    weight = ops.quantize_weight(draw(1536, 384, seed=1), draw(1536, seed=2))
    together = ops.quantized_linear(x, scale, weight, gelu="none")
    before = torch.get_num_threads()
    torch.set_num_threads(num_threads)
    try:
        for size in (1, 2, 7, 100, 513):
            parts = [
                ops.quantized_linear(part, scale_t, weight, gelu="none")
                for part, scale_t in zip(
                    torch.split(x, size), torch.split(scale, size), strict=True
                )
            ]
            assert torch.equal(torch.cat(parts), together), f"{size} rows at a time"
    finally:
        torch.set_num_threads(before)


def test_native_products_are_operators_that_trace() -> None:
    skip_if_refused("quantized_linear", "native", CallFacts())
    from encoder_engine.ops.native import quantized_linear

    weight = ops.quantize_weight(torch.randn(6, 8), torch.randn(6))
    rows = ops.quantize_rows(torch.randn(5, 8))
    parts = (weight.content_for("native"), weight.scale_N, weight.bias_N)
    torch.library.opcheck(quantized_linear.operator, (*rows, *parts, "tanh", torch.bfloat16))
    torch.library.opcheck(quantized_linear.requantizing_operator, (*rows, *parts, None))


@pytest.mark.usefixtures("with_bytes")
def test_a_weight_is_rounded_to_the_nearest_of_255_steps() -> None:
    plain = draw(100, 37, seed=3)
    plain[5] = 0.0
    weight = ops.quantize_weight(plain)
    assert weight.shape == (100, 37)
    assert weight.unpack().dtype == torch.int8
    assert weight.unpack().abs().max() == 127
    # Half a step, and the rounding of the product that undoes the scale.
    allowed = 0.5 * weight.scale_N[:, None] + torch.finfo(torch.float32).eps * plain.abs()
    assert bool(((weight.dequantize() - plain).abs() <= allowed).all())
    again = ops.QuantizedWeight.pack(weight.unpack(), weight.scale_N, None)
    assert torch.equal(again.unpack(), weight.unpack())


@pytest.mark.parametrize("numbers", [1, 37 * 8])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_weight_is_rounded_alike_in_pieces_of_any_size(
    numbers: int, dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch
) -> None:
    plain = draw(37, 100, seed=3).T.to(dtype)
    whole = ops.quantize_weight(plain)
    module = importlib.import_module("encoder_engine.ops.quantized_linear")
    monkeypatch.setattr(module, "ROUNDED_AT_ONCE", numbers)
    pieces = ops.quantize_weight(plain)
    assert torch.equal(pieces.unpack(), whole.unpack())
    assert torch.equal(pieces.scale_N, whole.scale_N)


@pytest.mark.usefixtures("with_bytes")
def test_a_weight_may_lie_transposed_in_memory() -> None:
    plain = draw(40, 24, seed=3).T
    weight, same = ops.quantize_weight(plain), ops.quantize_weight(plain.contiguous())
    assert torch.equal(weight.unpack(), same.unpack())


def test_no_number_among_the_weights_is_no_number_in_the_result() -> None:
    plain = torch.ones(4, 3)
    plain[0, 1], plain[2, 0], plain[3] = torch.nan, torch.inf, 1e-44
    weight = ops.quantize_weight(plain)
    assert weight.scale_N.isnan().tolist() == [True, False, True, False]
    assert weight.scale_N[3] == 1.0
    for name in IMPLEMENTATIONS:
        found = ops.quantized_linear(*draw_rows(2, 3), weight, implementation=name)
        assert found.isnan().tolist() == [[True, False, True, False]] * 2, name


def test_sums_are_exact_up_to_the_limit_and_refused_beyond() -> None:
    x, ones = torch.zeros(1, MOST_TERMS, dtype=torch.uint8), torch.ones(1)
    lowest = torch.full((1, MOST_TERMS), -128, dtype=torch.int8)
    weight = ops.QuantizedWeight.pack(lowest, ones, None)
    expected = torch.tensor([[128 * 128 * MOST_TERMS]], dtype=torch.float32)
    for name in IMPLEMENTATIONS:
        found = ops.quantized_linear(x, ones, weight, implementation=name)
        assert torch.equal(found, expected), name
    for terms in (0, MOST_TERMS + 1):
        steps = torch.ones(1, terms, dtype=torch.int8)
        for make in (
            ops.quantize_weight,
            partial(ops.QuantizedWeight.pack, scale_N=ones, bias_N=None),
        ):
            with pytest.raises(ShapeError, match="input features"):
                make(steps)


def test_input_that_does_not_fit_is_refused() -> None:
    weight = ops.quantize_weight(torch.ones(3, 2))
    x, scale = draw_rows(4, 2)
    with pytest.raises(ShapeError, match="has 5 features"):
        ops.quantized_linear(draw_rows(4, 5)[0], scale, weight)
    for shape in ((), (2,), (1, 4, 2)):
        with pytest.raises(ShapeError, match=r"input must be uint8 \[T, K\], got"):
            ops.quantized_linear(x.new_zeros(shape), scale, weight)
    with pytest.raises(ShapeError, match=r"ops\.quantize_rows"):
        ops.quantized_linear(x.float(), scale, weight)
    with pytest.raises(ShapeError, match="has 4 rows"):
        ops.quantized_linear(x, scale[:2], weight)
    with pytest.raises(ShapeError, match="float32 or bfloat16"):
        ops.quantized_linear(x, scale, weight, dtype=torch.float64)
    with pytest.raises(ShapeError, match="approximate"):
        ops.quantized_linear(x, scale, weight, gelu="erf")  # type: ignore[arg-type]
    with pytest.raises(ShapeError, match=r"bias \[N\]"):
        ops.quantize_weight(torch.ones(3, 2), torch.ones(2))
    with pytest.raises(ShapeError, match="scale is on meta"):
        ops.quantized_linear(x, scale.to("meta"), weight)


def test_integers_that_do_not_fit_their_scales_are_refused() -> None:
    steps, scale = torch.ones(3, 2, dtype=torch.int8), torch.ones(3)
    for weight, scales, bias in (
        (steps.float(), scale, None),
        (steps[0], scale, None),
        (steps, scale[:2], None),
        (steps, scale.double(), None),
        (steps, scale, scale[:2]),
        (steps.to("meta"), scale, None),
        (steps, scale.to("meta"), None),
    ):
        with pytest.raises(ShapeError):
            ops.QuantizedWeight.pack(weight, scales, bias)
