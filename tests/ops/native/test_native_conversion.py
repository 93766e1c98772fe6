"""Numbers converted without PyTorch have the bits of PyTorch's conversions."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from encoder_engine import ops
from encoder_engine.errors import ShapeError
from tests.ops.cases import dtype_id, rows
from tests.ops.native.batches import refused
from tests.selection import unless

COUNTS = [0, 1, 17, 300_001]


def every_bfloat16() -> Tensor:
    return torch.arange(-(1 << 15), 1 << 15, dtype=torch.int32).to(torch.int16).view(torch.bfloat16)


def bits(x: Tensor) -> Tensor:
    """Return the bits, with one NaN in place of all."""
    filled = torch.where(x.isnan(), torch.tensor(torch.nan, dtype=x.dtype), x)
    return filled.view({2: torch.int16, 4: torch.int32}[x.element_size()])


@unless(refused)
def test_widening_is_exact_for_every_number() -> None:
    from encoder_engine import _native

    half = every_bfloat16()
    wide = torch.empty(len(half))
    _native.widen(half.data_ptr(), wide.data_ptr(), len(half), 2)
    assert torch.equal(bits(wide), bits(half.float()))


@unless(refused)
@pytest.mark.parametrize("count", COUNTS)
@pytest.mark.parametrize("num_threads", [1, 3])
def test_narrowing_rounds_as_a_cast_does(count: int, num_threads: int) -> None:
    from encoder_engine import _native

    generator = torch.Generator().manual_seed(count)
    # Any bits: denormals, infinities and NaN among them.
    drawn = torch.randint(-(1 << 31), 1 << 31, (count,), generator=generator, dtype=torch.int64)
    wide = drawn.to(torch.int32).view(torch.float32)
    half = torch.empty(count, dtype=torch.bfloat16)
    _native.narrow(wide.data_ptr(), half.data_ptr(), count, num_threads)
    assert torch.equal(bits(half), bits(wide.to(torch.bfloat16)))


@unless(refused)
def test_narrowing_rounds_ties_to_even_and_keeps_the_edges() -> None:
    from encoder_engine import _native

    patterns = torch.arange(1 << 16, dtype=torch.int64) << 16
    found = []
    for low in (0, 1, 0x7FFF, 0x8000, 0x8001, 0xFFFF):
        signed = torch.where(patterns >= 1 << 31, patterns - (1 << 32), patterns) + low
        wide = signed.to(torch.int32).view(torch.float32)
        half = torch.empty(len(wide), dtype=torch.bfloat16)
        _native.narrow(wide.data_ptr(), half.data_ptr(), len(wide), 2)
        found.append(torch.equal(bits(half), bits(wide.to(torch.bfloat16))))
    assert all(found)


@unless(refused)
@pytest.mark.parametrize("kind", [torch.float64, torch.float32, torch.float16, torch.bfloat16])
@pytest.mark.parametrize("count", COUNTS)
def test_the_largest_magnitude_is_found(kind: torch.dtype, count: int) -> None:
    from encoder_engine import _native

    x = rows(count, seed=count, dtype=kind, device="cpu")
    if count > 2:
        x[1] = -x.abs().amax() - 1

    def find(given: Tensor) -> float:
        return _native.largest_magnitude(dtype_id(kind), given.data_ptr(), len(given), 2)

    assert find(x) == (float(x.abs().max()) if count else 0.0)
    if count > 2:
        x[count // 2] = -torch.inf
        assert find(x) == math.inf
        x[count - 1] = -torch.nan
        assert math.isnan(find(x))
    tiny = torch.full((3,), torch.finfo(kind).tiny / 2, dtype=kind)
    assert find(tiny) == float(tiny[0])


@unless(refused)
def test_an_unknown_number_type_is_refused() -> None:
    from encoder_engine import _native

    with pytest.raises(ValueError, match="no number type 'int8'; there are float64"):
        _native.largest_magnitude("int8", 0, 0, 1)


def quantized(weight: Tensor, num_threads: int) -> tuple[Tensor, Tensor]:
    from encoder_engine import _native

    num_rows, width = weight.shape
    found = torch.empty(num_rows, width, dtype=torch.int8), torch.empty(num_rows)
    _native.quantize_weight(
        *(weight.dtype == torch.bfloat16, weight.data_ptr(), num_rows, width),
        *(found[0].data_ptr(), found[1].data_ptr(), num_threads),
    )
    return found


@unless(refused)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=dtype_id)
@pytest.mark.parametrize(("num_rows", "width"), [(1, 1), (5, 37), (300, 1000), (3, 131_071)])
def test_a_weight_is_quantized_as_by_the_operation(
    num_rows: int, width: int, dtype: torch.dtype
) -> None:
    weight = rows(num_rows, width, seed=width, dtype=dtype, device="cpu")
    if num_rows > 4:
        # Multiples of half a step are ties where the scale is a power of two.
        weight[0] = torch.arange(width, dtype=dtype).remainder(255) / 2
        weight[0, 0] = 127
        weight[1] = 2.0**-101
        weight[2, 3] = torch.inf
        weight[3, 0] = -torch.nan
        weight[4] = torch.finfo(dtype).max
    expected = ops.quantize_weight(weight)
    for num_threads in (1, 3):
        plain, scales = quantized(weight, num_threads)
        assert torch.equal(bits(scales), bits(expected.scale_N))
        assert torch.equal(plain, expected.unpack())
    with pytest.raises(ShapeError):
        ops.quantize_weight(weight[None])
