"""Rows of NaN or infinities change no other row, whatever part of a block a width fills."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import torch
from torch import Tensor

from encoder_engine import ops
from encoder_engine.models.linear import Linear
from encoder_engine.ops import cpu
from encoder_engine.ops.registry import CallFacts
from encoder_engine.packing import Sequences
from tests.inference.native_module import NativeLinear
from tests.ops.cases import DTYPES, dtype_id, rows
from tests.selection import unless

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    Call = Callable[[Tensor, str], Sequence[Tensor]]

# Around the widths of vectors and blocks; all of them in the long run.
WIDTHS = [*range(1, 19), *range(30, 35), *range(62, 67), *range(126, 131)]
EVERY_WIDTH = list(range(1, 131))
# As many rows as oneDNN's AMX kernels compute with narrow rows, too.
NUM_ROWS, OUTER = 64, 70


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


def projected(x: Tensor, by: str) -> tuple[Tensor, ...]:
    labels = torch.arange(NUM_ROWS)
    found = ops.masked_cross_entropy(
        *(x, labels, labels, draw(OUTER, x.shape[1], seed=1, like=x)),
        reduction="none",
        return_predictions=True,
        implementation=by,
    )
    return tuple(found)


def gradient(x: Tensor, by: str) -> tuple[Tensor, ...]:
    """Return the input's gradients where x are those of the output."""
    with torch.enable_grad():
        input_TK = draw(NUM_ROWS, OUTER, seed=1, like=x).requires_grad_()
        weight = draw(x.shape[1], OUTER, seed=2, like=x)
        output = ops.linear(input_TK, weight, weight[:, 0], implementation=by)
        return torch.autograd.grad(output, input_TK, x)


def gradient_of_projection(x: Tensor, by: str) -> tuple[Tensor, ...]:
    """Return the rows' gradients where the columns of x are the vocabulary."""
    with torch.enable_grad():
        rows_TD = x[:, :1].repeat(1, OUTER).requires_grad_()
        labels, weight = torch.zeros(NUM_ROWS).long(), draw(x.shape[1], OUTER, seed=2, like=x)
        loss = ops.masked_cross_entropy(
            *(rows_TD, torch.arange(NUM_ROWS), labels, weight),
            reduction="none",
            implementation=by,
        )
        return torch.autograd.grad(loss, rows_TD, torch.ones_like(loss))


def attention(x: Tensor, by: str) -> tuple[Tensor, ...]:
    """Attend with a vector of distances, every row as a sequence."""
    rows_THD = x[:, None].contiguous()
    vectors = draw(2, 1, x.shape[1], seed=1, like=x)
    terms = ops.Disentangled(vectors, vectors, torch.tensor([0, 1, 1]))
    layout = Sequences.from_lengths([1] * NUM_ROWS, device="cpu")
    operands = rows_THD, rows_THD, rows_THD, layout
    return (
        ops.attention(*operands, implementation=by),
        ops.attention(*operands, disentangled=terms, implementation=by),
    )


def weights(x: Tensor, by: str) -> tuple[Tensor, ...]:
    """Weigh fixed keys by each row as a query."""
    query = x[None].transpose(0, 1).contiguous()
    key = draw(NUM_ROWS, 1, x.shape[1], seed=1, like=x)
    layout = Sequences.from_lengths([NUM_ROWS], device="cpu")
    marks = torch.zeros(NUM_ROWS, 0, dtype=torch.bool)
    vectors = draw(2, 1, x.shape[1], seed=1, like=x)
    terms = ops.Disentangled(vectors, None, torch.tensor([0, 1, 1]))
    found = [
        ops.attention(query, key, key, layout, implementation=by),
        ops.attention_statistics(query, key, key, layout, marks, implementation=by)[1].entropy_TH,
    ]
    if by == "aten":
        found.append(ops.attention(query, key, key, layout, disentangled=terms, implementation=by))
        probabilities = ops.attention_probabilities(query, key, layout, implementation=by)
        found.append(probabilities[0].transpose(0, 1))
    return tuple(found)


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
    "masked_cross_entropy": projected,
    "gradient of linear": gradient,
    "gradient of masked_cross_entropy": gradient_of_projection,
    "attention": attention,
    "attention's weights": weights,
}
EVEN = ("geglu", "swiglu", "rotary")
ATEN_ONLY = ("masked_cross_entropy", "gradient of linear", "gradient of masked_cross_entropy")


def refused(name: str, by: str, dtype: torch.dtype) -> str | None:
    if by != "native":
        return None
    if name in ATEN_ONLY:
        return f"{name} is not native"
    return cpu.refuse_native(CallFacts(dtype=dtype_id(dtype)))


@unless(refused)
@pytest.mark.parametrize("dtype", DTYPES, ids=dtype_id)
@pytest.mark.parametrize("by", ["native", "aten"])
@pytest.mark.parametrize("name", CALLS)
@pytest.mark.parametrize(
    "widths", [WIDTHS, pytest.param(EVERY_WIDTH, marks=pytest.mark.exhaustive)], ids=["some", "all"]
)
@torch.no_grad()
def test_rows_of_nan_or_infinities_change_no_other_row(
    name: str, by: str, dtype: torch.dtype, widths: list[int]
) -> None:
    for width in widths:
        if width % 2 and name in EVEN:
            continue
        x = rows(NUM_ROWS, width, seed=0, dtype=dtype, device="cpu")
        clean = CALLS[name](x, by)
        for first, value in enumerate((torch.nan, torch.inf)):
            damaged = x.clone()
            damaged[first::2] = value
            for found, expected in zip(CALLS[name](damaged, by), clean, strict=True):
                whole = torch.equal(found[1 - first :: 2], expected[1 - first :: 2])
                assert whole, f"width {width}, every other row {value}"
