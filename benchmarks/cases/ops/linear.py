"""The dense layer (plain, with a prepacked weight, and in 8-bit integers) against plain PyTorch."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor

from benchmarks.jobs.op_case import CPU, Shape, Work, op_specs
from encoder_engine import ops
from encoder_engine.inference.layers import pack
from encoder_engine.inference.rows import project_rows
from encoder_engine.models.checkpoints.stacking import to_array, to_tensor

if TYPE_CHECKING:
    from benchmarks.measuring.case import CaseSpec


def case_specs() -> list[CaseSpec]:
    """Return forward cases, and for the plain layer also forward with backward."""
    return [
        *op_specs("linear", make_work),
        *op_specs("packed_linear", make_packed_work, modes=("forward",), devices=CPU),
        *op_specs("quantize_rows", make_rows_work, modes=("forward",), devices=CPU),
        *(
            spec
            for name in ("quantized_linear", "requantized_linear")
            for spec in op_specs(
                name, partial(make_quantized_work, name), modes=("forward",), devices=CPU
            )
        ),
    ]


def make_work(shape: Shape) -> Work:
    """Define the case: a layer that widens rows fourfold, as the first of a feed-forward."""
    width = shape.width
    return Work(
        inputs=shape.inputs(
            x=(shape.num_tokens, width), weight=(4 * width, width), bias=(4 * width,)
        ),
        ours=lambda by, x, weight, bias: ops.linear(x, weight, bias, implementation=by),
        eager=lambda x, weight, bias: F.linear(x, weight, bias),
        terms=5 * width + shape.num_tokens,
        operations=8 * shape.num_tokens * width**2,
    )


def make_packed_work(shape: Shape) -> Work:
    """Define the case: widen rows fourfold by a prepacked weight and apply GELU.

    Compiled encoders compute the first layer of a feed-forward so.
    """
    plain = make_work(shape)
    weight, bias = plain.inputs["weight"], plain.inputs["bias"]
    layer = pack(to_array(weight), to_array(bias))

    def ours(by: str, *, x: Tensor) -> Tensor:
        if by == "reference":
            return eager(x=x)
        threads = torch.get_num_threads()
        return to_tensor(project_rows(to_array(x), layer, function="gelu", num_threads=threads))

    def eager(*, x: Tensor) -> Tensor:
        return F.gelu(F.linear(x, weight.to(x.dtype), bias.to(x.dtype)))

    return Work(
        inputs={"x": plain.inputs["x"]},
        ours=ours,
        eager=eager,
        terms=shape.width + 1,
        operations=plain.operations,
        refusals={"native": None},
    )


# The gates look at the scales; tests/ops/linear at the bytes.


def make_rows_work(shape: Shape) -> Work:
    """Define the case: quantize rows as wide as a feed-forward's second layer reads."""
    return Work(
        inputs=shape.inputs(x=(shape.num_tokens, 4 * shape.width)),
        ours=lambda by, x: ops.quantize_rows(x, implementation=by)[1],
        eager=eager_scales,
        compilable=False,  # it would leave out the bytes, which nobody asks for
        terms=1,
    )


def eager_scales(x: Tensor) -> Tensor:
    """Quantize rows to 8 bits in plain PyTorch, and return their scales."""
    scale = x.abs().amax(1) / 127
    ((x / scale[:, None]).round() + 128).byte()
    return scale


def make_quantized_work(name: str, shape: Shape) -> Work:
    """Define the case of a layer on 8-bit rows that widens them fourfold, with GELU.

    ``name``: "quantized_linear" returns floats, "requantized_linear" 8-bit rows.
    """
    plain = make_work(shape)
    weight = ops.quantize_weight(plain.inputs["weight"], plain.inputs["bias"])
    plain_NK = weight.dequantize()
    bytes_TK, scale_T = ops.quantize_rows(plain.inputs["x"])

    def ours(by: str, *, scale: Tensor) -> Tensor:
        if scale.dtype == torch.float64:  # the truth
            return eager(scale=scale)
        if name == "quantized_linear":
            return ops.quantized_linear(bytes_TK, scale, weight, gelu="none", implementation=by)
        return ops.requantized_linear(bytes_TK, scale, weight, gelu="none", implementation=by)[1]

    def eager(*, scale: Tensor) -> Tensor:
        assert weight.bias_N is not None
        rows_TK = (bytes_TK.to(scale.dtype) - 128) * scale[:, None]
        raised_TN = F.linear(rows_TK, plain_NK.to(scale.dtype), weight.bias_N.to(scale.dtype))
        activated_TN = F.gelu(raised_TN)
        if name == "quantized_linear":
            return activated_TN
        return activated_TN.abs().amax(1) / 127

    return Work(
        inputs={"scale": scale_T},
        ours=ours,
        eager=eager,
        terms=shape.width + 1,
        operations=plain.operations,
        precision="int8",
        read_bytes=bytes_TK.nbytes + scale_T.nbytes + plain_NK.numel(),
    )
