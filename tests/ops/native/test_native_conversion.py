"""Weights quantized without PyTorch have the bits of PyTorch's conversions."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from encoder_engine import ops
from encoder_engine.errors import ShapeError
from tests.ops.cases import dtype_id, rows
from tests.ops.native.batches import refused
from tests.selection import unless


def bits(x: Tensor) -> Tensor:
    """Return the bits, with one NaN in place of all."""
    return torch.where(x.isnan(), torch.tensor(torch.nan, dtype=x.dtype), x).view(torch.int32)


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
