"""The dense layer with a weight packed beforehand for the CPU's matrix products (GEMM)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch

from encoder_engine.errors import ShapeError
from encoder_engine.ops import choose, cpu
from encoder_engine.ops.activation import check_approximation
from encoder_engine.ops.registry import (
    CallFacts,
    Implementation,
    Operation,
    check_alike,
    tensor_facts,
)
from encoder_engine.ops.weights import PackedWeight, layout_module

if TYPE_CHECKING:
    from torch import Tensor

    from encoder_engine.ops.weights import Approximation

__all__ = ["PackedWeight", "pack_weight", "packed_linear"]

LAYOUTS = ("native", "aten")


def _refuse_onednn(facts: CallFacts) -> str | None:
    if facts.device != "cpu":
        return f"packed weights are for CPUs, this is {facts.device}"
    if not torch.backends.mkldnn.is_available():  # type: ignore[no-untyped-call]
        return "this PyTorch was built without oneDNN"
    if facts.dtype not in ("float32", "bfloat16"):
        return f"oneDNN packs float32 and bfloat16, not {facts.dtype}"
    if facts.dtype == "bfloat16" and not torch.ops.mkldnn._is_mkldnn_bf16_supported():
        return "oneDNN multiplies no bfloat16 on this processor"
    if facts.requires_grad:
        return "packed weights are for inference; a gradient needs the plain ones"
    return None


@dataclass(frozen=True, kw_only=True)
class PackedFacts(CallFacts):
    """The facts of a packed layer; ``layout``: that of its weight, None: not packed yet."""

    layout: str | None = None


def _native_is_automatic(facts: PackedFacts) -> bool:
    """Return whether encoders were measured as fast as with oneDNN, and faster for one text."""
    return cpu.is_automatic(facts) if facts.layout is None else facts.layout == "native"


_PACKED_LINEAR = Operation(
    "packed_linear",
    PackedFacts,
    (
        Implementation(
            name="native",
            module="encoder_engine.ops.native.packed_linear",
            refuse=cpu.refuse_native,
            automatic=_native_is_automatic,
        ),
        Implementation(
            name="aten",
            module="encoder_engine.ops.aten.packed_linear",
            refuse=_refuse_onednn,
            automatic=lambda facts: facts.layout in ("aten", None),
        ),
        Implementation(name="reference", module="encoder_engine.kernels.linear.reference"),
    ),
)


def pack_weight(
    weight_NK: Tensor, bias_N: Tensor | None = None, *, implementation: str | None = None
) -> PackedWeight:
    """Pack a weight [N, K] for :func:`packed_linear`; ``bias_N``: [N] or None.

    float32 or bfloat16, on the CPU. ``implementation``: ``"native"`` or ``"aten"``. Raises
    :class:`ShapeError`, and :class:`ImplementationError` for a weight that cannot be packed here.
    """
    if weight_NK.dim() != 2 or (bias_N is not None and bias_N.shape != weight_NK.shape[:1]):
        bias = None if bias_N is None else list(bias_N.shape)
        raise ShapeError(f"weight must be [N, K] and bias [N], got {list(weight_NK.shape)}, {bias}")
    check_alike(weight_NK, bias=bias_N)
    facts = PackedFacts(**(tensor_facts(weight_NK) | {"requires_grad": False}))
    explanation = _PACKED_LINEAR.explain(facts, named=implementation is not None)
    able = [(name, refusal) for name, refusal in explanation if name in LAYOUTS]
    layout = choose.choose("pack_weight", able, implementation)
    weight_NK = weight_NK.detach()
    bias_N = None if bias_N is None else bias_N.detach().to(weight_NK.dtype)
    rows, columns = weight_NK.shape
    return PackedWeight(
        content=layout_module(layout, "packed_linear").pack(weight_NK, bias_N),
        bias_N=bias_N,
        shape=(rows, columns),
        dtype=weight_NK.dtype,
        layout=layout,
    )


def packed_linear(
    input_TK: Tensor,
    weight: PackedWeight,
    *,
    gelu: Approximation | None = None,
    implementation: str | None = None,
) -> Tensor:
    """Compute ``input @ weight.T + bias``, and GELU of it with ``gelu``.

    ``input_TK``: [T, K] in the weight's dtype. Returns [T, N]. Has no gradient. In float32 a row's
    result does not depend on the other rows. Raises :class:`ShapeError`.
    """
    if input_TK.dim() != 2 or input_TK.shape[1] != weight.shape[1]:
        raise ShapeError(
            f"input {list(input_TK.shape)} has {input_TK.shape[-1]} features, "
            f"the packed weight {list(weight.shape)} expects {weight.shape[1]}"
        )
    if gelu is not None:
        check_approximation(gelu)
    if input_TK.dtype != weight.dtype:
        raise ShapeError(f"input is {input_TK.dtype}, the packed weight {weight.dtype}")
    function = _PACKED_LINEAR.find(implementation, input_TK, layout=weight.layout)
    result: Tensor = function(input_TK, weight, gelu=gelu)
    return result
