"""The dense layer with a weight laid out beforehand for this machine's matrix products."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from encoder_engine.errors import ImplementationError, ShapeError
from encoder_engine.ops.activation import check_approximation
from encoder_engine.ops.registry import (
    Facts,
    Implementation,
    Operation,
    check_alike,
    tensor_facts,
)

if TYPE_CHECKING:
    from torch import Tensor

    from encoder_engine.ops.activation import Approximation

__all__ = ["PackedWeight", "pack_weight", "packed_linear"]


@dataclass(frozen=True, kw_only=True, eq=False)
class PackedWeight:
    """A dense layer's weight [N, K] as oneDNN's products read it, and its bias [N] or None.

    Takes the plain weight's memory, not more; :meth:`unpack` gives it back bit for bit.
    """

    content: Tensor
    bias_N: Tensor | None

    @property
    def shape(self) -> tuple[int, int]:
        """(N, K): features out, features in."""
        rows, columns = self.content.shape
        return rows, columns

    @property
    def dtype(self) -> object:
        """The weight's type."""
        return self.content.dtype

    def unpack(self) -> Tensor:
        """Return the plain weight, [N, K]."""
        return self.content.to_dense(self.content.dtype)


def _refuse_onednn(facts: Facts) -> str | None:
    import torch

    if facts.device != "cpu":
        return f"packed weights are for CPUs, this is {facts.device}"
    if not torch.backends.mkldnn.is_available():  # type: ignore[no-untyped-call]
        return "this PyTorch was built without oneDNN"
    if facts.dtype not in ("float32", "bfloat16"):
        return f"oneDNN packs float32 and bfloat16, not {facts.dtype}"
    if facts.requires_grad:
        return "packed weights are for inference; a gradient needs the plain ones"
    return None


_PACKED_LINEAR = Operation(
    "packed_linear",
    Facts,
    (
        Implementation(
            name="aten", module="encoder_engine.ops.aten.packed_linear", refuse=_refuse_onednn
        ),
        Implementation(name="reference", module="encoder_engine.kernels.linear.reference"),
    ),
)


def pack_weight(weight_NK: Tensor, bias_N: Tensor | None = None) -> PackedWeight:
    """Lay a weight [N, K] out for :func:`packed_linear`; ``bias_N``: [N] or None, kept as it is.

    float32 or bfloat16, on the CPU. Raises :class:`ShapeError`, and :class:`ImplementationError`
    for what cannot be packed here.
    """
    if weight_NK.dim() != 2 or (bias_N is not None and bias_N.shape != weight_NK.shape[:1]):
        bias = None if bias_N is None else list(bias_N.shape)
        raise ShapeError(f"weight must be [N, K] and bias [N], got {list(weight_NK.shape)}, {bias}")
    check_alike(weight_NK, bias=bias_N)
    refusal = _refuse_onednn(Facts(**(tensor_facts(weight_NK) | {"requires_grad": False})))
    if refusal is not None:
        raise ImplementationError(f"the weight cannot be packed: {refusal}")
    from encoder_engine.ops.aten.packed_linear import pack

    return PackedWeight(content=pack(weight_NK), bias_N=None if bias_N is None else bias_N.detach())


def packed_linear(
    input_TK: Tensor,
    weight: PackedWeight,
    *,
    gelu: Approximation | None = None,
    implementation: str | None = None,
) -> Tensor:
    """Compute ``input @ weight.T + bias`` and, where ``gelu`` names its form, GELU of it.

    ``input_TK``: [T, K] in the weight's dtype. Returns [T, N]. For inference: there is no gradient.
    In float32 a row's result does not depend on the other rows. Raises :class:`ShapeError`.
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
    function = _PACKED_LINEAR.find(implementation, input_TK)
    result: Tensor = function(input_TK, weight, gelu=gelu)
    return result
