"""The activation of a feed-forward layer, with its bias: the contract."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from encoder_engine.errors import ShapeError
from encoder_engine.ops import gpu
from encoder_engine.ops.registry import (
    Facts,
    Implementation,
    Operation,
    check_alike,
    tensor_facts,
)

if TYPE_CHECKING:
    from torch import Tensor

__all__ = ["Approximation", "bias_gelu"]

Approximation = Literal["none", "tanh"]

_BIAS_GELU = Operation(
    "bias_gelu",
    Facts,
    (
        Implementation(
            name="triton",
            module="encoder_engine.kernels.activation.operator",
            refuse=gpu.refuse_triton,
            unasked=gpu.on_its_own,
        ),
        Implementation(name="aten", module="encoder_engine.ops.aten.activation"),
        Implementation(name="reference", module="encoder_engine.kernels.activation.reference"),
    ),
)


def bias_gelu(
    input_TF: Tensor,
    bias_F: Tensor | None,
    *,
    approximate: Approximation = "none",
    implementation: str | None = None,
) -> Tensor:
    """Add the bias and apply GELU (Hendrycks and Gimpel 2016): ``F.gelu(input + bias)``.

    ``input_TF``: [T, F]; ``bias_F``: [F] or None. ``approximate``: ``"none"`` (erf) or
    ``"tanh"``. Returns [T, F] in the input's dtype. Raises :class:`ShapeError`.
    """
    if input_TF.dim() != 2 or (bias_F is not None and bias_F.shape != input_TF.shape[1:]):
        bias_shape = None if bias_F is None else list(bias_F.shape)
        raise ShapeError(
            f"input must be [T, F] and bias [F], got {list(input_TF.shape)} and {bias_shape}"
        )
    if approximate not in ("none", "tanh"):
        raise ShapeError(f"approximate must be 'none' or 'tanh', got {approximate!r}")
    check_alike(input_TF, bias=bias_F)
    function = _BIAS_GELU.find(Facts(**tensor_facts(input_TF, bias_F)), implementation)
    result: Tensor = function(input_TF, bias_F, approximate=approximate)
    return result
