"""The activations of a feed-forward layer, with its bias; implementations are chosen per call."""

from __future__ import annotations

from typing import TYPE_CHECKING

from encoder_engine.errors import ShapeError
from encoder_engine.ops import cpu, gpu
from encoder_engine.ops.registry import CallFacts, Operation, check_alike, plain
from encoder_engine.ops.weights import Approximation

if TYPE_CHECKING:
    from torch import Tensor


__all__ = ["Approximation", "bias_gelu", "geglu", "swiglu"]


def _activation(name: str) -> Operation:
    return Operation(
        name,
        CallFacts,
        (gpu.triton("activation"), cpu.native("activation"), *plain("activation")),
    )


_BIAS_GELU = _activation("bias_gelu")
_GEGLU = _activation("geglu")
_SWIGLU = _activation("swiglu")


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
    check_approximation(approximate)
    check_alike(input_TF, bias=bias_F)
    function = _BIAS_GELU.find(implementation, input_TF, bias_F)
    result: Tensor = function(input_TF, bias_F, approximate=approximate)
    return result


def geglu(
    input_TG: Tensor,
    bias_G: Tensor | None = None,
    *,
    approximate: Approximation = "none",
    implementation: str | None = None,
) -> Tensor:
    """Add the bias, apply GELU to the first half and multiply by the second (Shazeer 2020).

    ``x, gate = (input + bias).chunk(2, dim=1); F.gelu(x) * gate``

    ``input_TG``: [T, G], G = 2 F; ``bias_G``: [G] or None. ``approximate``: ``"none"`` (erf) or
    ``"tanh"``. Returns [T, F] in the input's dtype. Raises :class:`ShapeError`.
    """
    _check_halves(input_TG, bias_G)
    check_approximation(approximate)
    function = _GEGLU.find(implementation, input_TG, bias_G)
    result: Tensor = function(input_TG, bias_G, approximate=approximate)
    return result


def swiglu(
    input_TG: Tensor, bias_G: Tensor | None = None, *, implementation: str | None = None
) -> Tensor:
    """Add the bias, apply SiLU to the first half and multiply by the second (Shazeer 2020).

    ``x, gate = (input + bias).chunk(2, dim=1); F.silu(x) * gate``

    ``input_TG``: [T, G], G = 2 F; ``bias_G``: [G] or None. Returns [T, F] in the input's dtype.
    Raises :class:`ShapeError`.
    """
    _check_halves(input_TG, bias_G)
    function = _SWIGLU.find(implementation, input_TG, bias_G)
    result: Tensor = function(input_TG, bias_G)
    return result


def check_approximation(approximate: str) -> None:
    if approximate not in ("none", "tanh"):
        raise ShapeError(f"approximate must be 'none' or 'tanh', got {approximate!r}")


def _check_halves(input_TG: Tensor, bias_G: Tensor | None) -> None:
    if input_TG.dim() != 2 or input_TG.shape[1] % 2:
        raise ShapeError(
            f"input must be [T, 2 F], two halves of equal width, got {list(input_TG.shape)}"
        )
    if bias_G is not None and bias_G.shape != input_TG.shape[1:]:
        raise ShapeError(f"bias is {list(bias_G.shape)}, the input is {input_TG.shape[1]} wide")
    check_alike(input_TG, bias=bias_G)
