"""The dense layer in 8-bit integers, its result as floats and as bytes, against plain PyTorch."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor

from benchmarks.jobs.op_case import Shape, Work, op_specs
from encoder_engine import ops

if TYPE_CHECKING:
    from benchmarks.measuring.case import CaseSpec


def case_specs() -> list[CaseSpec]:
    """Forward: integers have no gradient."""
    return [
        spec
        for name in ("quantized_linear", "requantized_linear")
        for spec in op_specs(name, partial(make_work, name), inference_only=True)
    ]


def make_work(name: str, shape: Shape) -> Work:
    """Widen rows fourfold, as the first layer of every feed-forward does; GELU follows."""
    width = shape.width
    weight = ops.quantize_weight(
        shape.draw(4 * width, width, seed=1), shape.draw(4 * width, seed=2)
    )
    plain_NK = weight.dequantize()
    bytes_TK, scale_T = ops.quantize_rows(shape.draw(shape.num_tokens, width, seed=0))

    def ours(by: str, *, scale: Tensor) -> Tensor:
        if scale.dtype == torch.float64:  # the truth
            return eager(scale=scale)
        if name == "quantized_linear":
            return ops.quantized_linear(bytes_TK, scale, weight, gelu="none", implementation=by)
        # The gate looks at the scales; tests/ops/linear/test_quantized_linear.py at the bytes.
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
        terms=width + 1,
        operations=8 * shape.num_tokens * width**2,
        precision="int8",
        read_bytes=bytes_TK.nbytes + scale_T.nbytes + plain_NK.numel(),
    )
