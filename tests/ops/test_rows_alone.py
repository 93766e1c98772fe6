"""A row of NaN changes no other row, whatever part of a block of numbers its width fills."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import torch
from torch import Tensor

from encoder_engine import ops
from encoder_engine.models.linear import Linear
from encoder_engine.ops import cpu
from encoder_engine.ops.registry import CallFacts
from tests.inference.native_module import NativeLinear
from tests.ops.cases import DTYPES, dtype_id, rows
from tests.selection import unless

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    Call = Callable[[Tensor, str], Sequence[Tensor]]

# None fills whole blocks of 8, 16, 32 or 64 numbers.
WIDTHS = [2, 92, 134]
NUM_ROWS, OUTER = 5, 70


def draw(*shape: int, seed: int, like: Tensor) -> Tensor:
    return rows(*shape, seed=seed, dtype=like.dtype, device="cpu")


def dense(x: Tensor, by: str) -> tuple[Tensor]:
    weight, bias = draw(OUTER, x.shape[1], seed=1, like=x), draw(OUTER, seed=2, like=x)
    if by != "native":
        return (ops.linear(x, weight, bias, implementation=by),)
    plain = Linear(x.shape[1], OUTER, bias=True, device="meta")
    plain.weight, plain.bias = torch.nn.Parameter(weight), torch.nn.Parameter(bias)
    return (NativeLinear(plain)(x),)


def quantized(x: Tensor, by: str) -> tuple[Tensor, ...]:
    numbers, scales = ops.quantize_rows(x, implementation=by)
    weight = ops.quantize_weight(draw(OUTER, x.shape[1], seed=1, like=x).float())
    output = ops.quantized_linear(numbers, scales, weight, implementation=by)
    return (
        numbers,
        scales,
        output,
        *ops.requantized_linear(numbers, scales, weight, implementation=by),
    )


def norm(x: Tensor, by: str) -> tuple[Tensor]:
    weight, bias = (draw(x.shape[1], seed=seed, like=x) for seed in (1, 2))
    return (ops.layer_norm(x, weight, bias, epsilon=1e-5, residual_TD=x, implementation=by),)


def quantized_norm(x: Tensor, by: str) -> tuple[Tensor, ...]:
    weight, bias = (draw(x.shape[1], seed=seed, like=x) for seed in (1, 2))
    return ops.layer_norm_quantized(x, weight, bias, epsilon=1e-5, implementation=by)


def rotated(x: Tensor, by: str) -> tuple[Tensor, ...]:
    heads, places = x[:, None], torch.arange(NUM_ROWS)
    table = ops.rotary_table(NUM_ROWS, x.shape[1], base=1e4, device="cpu", dtype=torch.float64)
    wide = table.to(torch.promote_types(x.dtype, torch.float32))
    return ops.rotary(heads, heads, wide, places, implementation=by)


CALLS: dict[str, Call] = {
    "linear": dense,
    "quantized_linear": quantized,
    "layer_norm": norm,
    "layer_norm_quantized": quantized_norm,
    "rms_norm": lambda x, by: (
        ops.rms_norm(x, draw(x.shape[1], seed=1, like=x), epsilon=1e-5, implementation=by),
    ),
    "bias_gelu": lambda x, by: (
        ops.bias_gelu(x, draw(x.shape[1], seed=1, like=x), implementation=by),
    ),
    "geglu": lambda x, by: (ops.geglu(x, implementation=by),),
    "swiglu": lambda x, by: (ops.swiglu(x, implementation=by),),
    "rotary": rotated,
}


def refused(by: str, dtype: torch.dtype, **_: object) -> str | None:
    return cpu.refuse_native(CallFacts(dtype=dtype_id(dtype))) if by == "native" else None


@unless(refused)
@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("dtype", DTYPES, ids=dtype_id)
@pytest.mark.parametrize("by", ["native", "aten"])
@pytest.mark.parametrize("name", CALLS)
@torch.no_grad()
def test_a_row_of_nan_changes_no_other_row(
    name: str, by: str, dtype: torch.dtype, width: int
) -> None:
    x = rows(NUM_ROWS, width, seed=0, dtype=dtype, device="cpu")
    clean = CALLS[name](x, by)
    for place in range(NUM_ROWS):
        damaged = x.clone()
        damaged[place] = torch.nan
        others = torch.arange(NUM_ROWS) != place
        for found, expected in zip(CALLS[name](damaged, by), clean, strict=True):
            assert torch.equal(found[others], expected[others]), f"row {place}"
