"""The dense layer: its public function, which chooses an implementation."""

from __future__ import annotations

from typing import TYPE_CHECKING

from encoder_engine.dataclass import dataclass
from encoder_engine.errors import ShapeError
from encoder_engine.ops import cpu
from encoder_engine.ops.registry import CallFacts, Operation, autocast_dtype, check_alike, plain

if TYPE_CHECKING:
    from torch import Tensor

__all__ = ["linear"]


@dataclass(frozen=True, kw_only=True)
class LinearFacts(CallFacts):
    """The facts of a call by which an implementation of the dense layer is chosen.

    ``autocast``: the name of autocast's dtype; None: autocast does not cast the input.
    """

    autocast: str | None = None


def _refuse_native(facts: LinearFacts) -> str | None:
    if not facts.requires_grad:
        return "it computes for training alone"
    if facts.autocast not in (None, *cpu.DTYPES):
        return f"it computes {', '.join(cpu.DTYPES)}, not {facts.autocast}"
    return cpu.refuse_trained(facts)


_LINEAR = Operation(
    "linear",
    LinearFacts,
    (cpu.native("linear", _refuse_native), *plain("linear")),
)


def linear(
    input_TK: Tensor,
    weight_NK: Tensor,
    bias_N: Tensor | None = None,
    *,
    implementation: str | None = None,
) -> Tensor:
    """Compute ``input @ weight.T + bias``.

    ``input_TK``: [T, K]; ``weight_NK``: [N, K]; ``bias_N``: [N] or None. Returns [T, N] in the
    input's dtype, under autocast in autocast's. Without gradients and outside of torch.compile, a
    row's result on a CPU in float32 does not depend on the other rows. Raises :class:`ShapeError`.
    """
    if input_TK.dim() != 2 or weight_NK.dim() != 2:
        raise ShapeError(
            f"input must be [T, K] and weight [N, K], got {list(input_TK.shape)} and "
            f"{list(weight_NK.shape)}"
        )
    if input_TK.shape[1] != weight_NK.shape[1]:
        raise ShapeError(
            f"input {list(input_TK.shape)} has {input_TK.shape[1]} features, "
            f"weight {list(weight_NK.shape)} expects {weight_NK.shape[1]}"
        )
    if bias_N is not None and bias_N.shape != weight_NK.shape[:1]:
        raise ShapeError(f"bias is {list(bias_N.shape)}, the weight has {len(weight_NK)} rows")
    check_alike(input_TK, weight=weight_NK, bias=bias_N)
    own = {"autocast": autocast_dtype(input_TK)}
    function = _LINEAR.find(implementation, input_TK, weight_NK, bias_N, **own)
    result: Tensor = function(input_TK, weight_NK, bias_N)
    return result
