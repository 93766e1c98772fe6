"""Layer and RMS normalisation, with the residual add and dropout before them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, overload

from encoder_engine.dataclass import dataclass
from encoder_engine.errors import ShapeError
from encoder_engine.ops import cpu, gpu
from encoder_engine.ops.registry import (
    CallFacts,
    Operation,
    autocast_residual,
    check_alike,
    check_probability,
    plain,
)

if TYPE_CHECKING:
    from torch import Tensor

__all__ = ["layer_norm", "rms_norm"]

# A program holds a whole row in registers.
WIDEST_TRITON = 16384


def _refuse_triton(facts: LayerNormFacts) -> str | None:
    if facts.width > WIDEST_TRITON:
        return f"its rows are at most {WIDEST_TRITON} wide, these are {facts.width}"
    return gpu.refuse_triton(facts)


@dataclass(frozen=True, kw_only=True)
class LayerNormFacts(CallFacts):
    """The facts of a call by which an implementation of layer norm or RMS norm is chosen."""

    width: int = 768
    dropout: bool = False


def _norm(name: str) -> Operation:
    return Operation(
        name,
        LayerNormFacts,
        (gpu.triton("layer_norm", _refuse_triton), cpu.native("layer_norm"), *plain("layer_norm")),
    )


_LAYER_NORM = _norm("layer_norm")
_RMS_NORM = _norm("rms_norm")


@overload
def layer_norm(
    input_TD: Tensor,
    weight_D: Tensor,
    bias_D: Tensor | None,
    *,
    epsilon: float,
    residual_TD: Tensor | None = None,
    dropout: float = 0.0,
    return_sum: Literal[False] = False,
    implementation: str | None = None,
) -> Tensor: ...


@overload
def layer_norm(
    input_TD: Tensor,
    weight_D: Tensor,
    bias_D: Tensor | None,
    *,
    epsilon: float,
    residual_TD: Tensor | None = None,
    dropout: float = 0.0,
    return_sum: Literal[True],
    implementation: str | None = None,
) -> tuple[Tensor, Tensor]: ...


def layer_norm(
    input_TD: Tensor,
    weight_D: Tensor,
    bias_D: Tensor | None,
    *,
    epsilon: float,
    residual_TD: Tensor | None = None,
    dropout: float = 0.0,
    return_sum: bool = False,
    implementation: str | None = None,
) -> Tensor | tuple[Tensor, Tensor]:
    """Normalise each row (Ba et al. 2016): ``F.layer_norm(F.dropout(input) + residual, ...)``.

    ``input_TD`` and ``residual_TD``: [T, D]; ``weight_D``, ``bias_D``: [D]. Returns [T, D] in the
    input's dtype, under autocast the residual stream's; mean and variance are in float32 or wider.
    ``return_sum``: also return ``F.dropout(input) + residual`` [T, D], the residual stream of a
    pre-norm block. Raises :class:`ShapeError`.
    """
    check_norm(input_TD, weight_D, bias_D, residual_TD, dropout)
    input_TD, residual_TD = autocast_residual(input_TD, residual_TD)
    tensors = (input_TD, weight_D, bias_D)
    own = {"width": input_TD.shape[1], "dropout": dropout > 0.0}
    function = _LAYER_NORM.find(implementation, *tensors, residual_TD, **own)
    output, summed = function(
        *tensors,
        epsilon=epsilon,
        residual_TD=residual_TD,
        dropout=dropout,
        return_sum=return_sum,
    )
    return (output, summed) if return_sum else output


@overload
def rms_norm(
    input_TD: Tensor,
    weight_D: Tensor,
    *,
    epsilon: float,
    residual_TD: Tensor | None = None,
    dropout: float = 0.0,
    return_sum: Literal[False] = False,
    implementation: str | None = None,
) -> Tensor: ...


@overload
def rms_norm(
    input_TD: Tensor,
    weight_D: Tensor,
    *,
    epsilon: float,
    residual_TD: Tensor | None = None,
    dropout: float = 0.0,
    return_sum: Literal[True],
    implementation: str | None = None,
) -> tuple[Tensor, Tensor]: ...


def rms_norm(
    input_TD: Tensor,
    weight_D: Tensor,
    *,
    epsilon: float,
    residual_TD: Tensor | None = None,
    dropout: float = 0.0,
    return_sum: bool = False,
    implementation: str | None = None,
) -> Tensor | tuple[Tensor, Tensor]:
    """Divide each row by its root mean square (Zhang and Sennrich 2019), as T5 does.

    ``F.rms_norm(F.dropout(input) + residual, weight.shape, weight, epsilon)``

    No mean is subtracted and no bias added; ``epsilon`` is added inside the root. ``input_TD`` and
    ``residual_TD``: [T, D]; ``weight_D``: [D]. Returns [T, D] in the input's dtype, under autocast
    the residual stream's; the mean square is kept in float32 or wider. ``return_sum``: also return
    ``F.dropout(input) + residual`` [T, D], the residual stream of a pre-norm block. Raises
    :class:`ShapeError`.
    """
    check_norm(input_TD, weight_D, None, residual_TD, dropout)
    input_TD, residual_TD = autocast_residual(input_TD, residual_TD)
    tensors = (input_TD, weight_D)
    own = {"width": input_TD.shape[1], "dropout": dropout > 0.0}
    function = _RMS_NORM.find(implementation, *tensors, residual_TD, **own)
    output, summed = function(
        *tensors,
        epsilon=epsilon,
        residual_TD=residual_TD,
        dropout=dropout,
        return_sum=return_sum,
    )
    return (output, summed) if return_sum else output


def check_norm(
    input_TD: Tensor,
    weight_D: Tensor,
    bias_D: Tensor | None,
    residual_TD: Tensor | None,
    dropout: float,
) -> None:
    """Raise :class:`ShapeError` for a norm's arguments that do not match, or a bad dropout."""
    if input_TD.dim() != 2 or weight_D.shape != input_TD.shape[1:]:
        raise ShapeError(
            f"input must be [T, D] and weight [D], got {list(input_TD.shape)} and "
            f"{list(weight_D.shape)}"
        )
    if residual_TD is not None and residual_TD.shape != input_TD.shape:
        raise ShapeError(f"residual is {list(residual_TD.shape)}, input is {list(input_TD.shape)}")
    if bias_D is not None and bias_D.shape != weight_D.shape:
        raise ShapeError(f"bias is {list(bias_D.shape)}, weight is {list(weight_D.shape)}")
    check_alike(input_TD, weight=weight_D, bias=bias_D, residual=residual_TD)
    check_probability(dropout)
