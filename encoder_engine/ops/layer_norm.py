"""Layer normalisation with the residual add and dropout before it: the contract."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from encoder_engine.errors import ShapeError
from encoder_engine.ops import gpu
from encoder_engine.ops.registry import (
    Facts,
    Implementation,
    Operation,
    check_alike,
    check_probability,
    tensor_facts,
)

if TYPE_CHECKING:
    from torch import Tensor

__all__ = ["layer_norm"]

# A program holds a whole row in registers.
WIDEST_TRITON = 16384


def _refuse_triton(facts: LayerNormFacts) -> str | None:
    if facts.width > WIDEST_TRITON:
        return f"its rows are at most {WIDEST_TRITON} wide, these are {facts.width}"
    return gpu.refuse_triton(facts)


@dataclass(frozen=True, kw_only=True)
class LayerNormFacts(Facts):
    """What layer norm is chosen by."""

    width: int = 768


_LAYER_NORM = Operation(
    "layer_norm",
    LayerNormFacts,
    (
        Implementation(
            name="triton",
            module="encoder_engine.kernels.layer_norm.operator",
            refuse=_refuse_triton,
            unasked=gpu.on_its_own,
        ),
        Implementation(name="aten", module="encoder_engine.ops.aten.layer_norm"),
        Implementation(name="reference", module="encoder_engine.kernels.layer_norm.reference"),
    ),
)


def layer_norm(
    input_TD: Tensor,
    weight_D: Tensor,
    bias_D: Tensor | None,
    *,
    epsilon: float,
    residual_TD: Tensor | None = None,
    dropout: float = 0.0,
    implementation: str | None = None,
) -> Tensor:
    """Normalise each row (Ba et al. 2016): ``F.layer_norm(F.dropout(input) + residual, ...)``.

    ``input_TD`` and ``residual_TD``: [T, D]; ``weight_D``, ``bias_D``: [D]. Returns [T, D] in the
    input's dtype; mean and variance are kept in float32 or wider. Raises :class:`ShapeError`.
    """
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
    facts = LayerNormFacts(
        **tensor_facts(input_TD, weight_D, bias_D, residual_TD), width=input_TD.shape[1]
    )
    function = _LAYER_NORM.find(facts, implementation)
    result: Tensor = function(
        input_TD, weight_D, bias_D, epsilon=epsilon, residual_TD=residual_TD, dropout=dropout
    )
    return result
