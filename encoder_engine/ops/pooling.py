"""Pooling of token vectors to one vector per sequence: its public function."""

from __future__ import annotations

from typing import TYPE_CHECKING

from encoder_engine.dataclass import dataclass
from encoder_engine.errors import ShapeError
from encoder_engine.ops import cpu, gpu
from encoder_engine.ops.registry import CallFacts, Operation, check_device, plain
from encoder_engine.packing.pooling_modes import POOLING_MODES, PoolingMode, check_mode

if TYPE_CHECKING:
    from torch import Tensor

    from encoder_engine.packing import Sequences

__all__ = ["POOLING_MODES", "PoolingMode", "pooling"]

# A program holds a whole pooled row in registers.
WIDEST_TRITON = 16384


@dataclass(frozen=True, kw_only=True)
class PoolingFacts(CallFacts):
    """The facts of a call by which an implementation of pooling is chosen."""

    width: int = 768


def _refuse_triton(facts: PoolingFacts) -> str | None:
    if facts.width > WIDEST_TRITON:
        return f"its rows are at most {WIDEST_TRITON} wide, these are {facts.width}"
    return gpu.refuse_triton(facts)


_POOLING = Operation(
    "pooling",
    PoolingFacts,
    (
        gpu.triton("pooling", _refuse_triton),
        cpu.native("pooling", cpu.refuse_native),
        *plain("pooling"),
    ),
)


def pooling(
    hidden_TD: Tensor,
    sequences: Sequences,
    *,
    mode: PoolingMode = "mean",
    normalize: bool = False,
    implementation: str | None = None,
) -> Tensor:
    """Reduce the rows of each sequence to one; modes are named as in sentence-transformers.

    ``mode``: ``cls``: the first row; ``lasttoken``: the last; ``max``: per feature; ``mean``;
    ``mean_sqrt_len_tokens``: sum / sqrt(n); ``weightedmean``: row i has weight i + 1.
    ``normalize``: divide by the Euclidean norm (at least 1e-12).
    An empty sequence gives zeros.

    ``hidden_TD``: [T, D]. Returns [B, D] in the same dtype, summed in float32 or wider. Raises
    :class:`ShapeError`, and :class:`UnknownNameError` for another mode.
    """
    check_mode(mode)
    if hidden_TD.dim() != 2 or hidden_TD.shape[0] != sequences.num_tokens:
        raise ShapeError(
            f"hidden must be [T, D] with T = {sequences.num_tokens} tokens, "
            f"got {list(hidden_TD.shape)}"
        )
    check_device(hidden_TD, cu_seqlens=sequences.cu_seqlens)
    function = _POOLING.find(implementation, hidden_TD, width=hidden_TD.shape[1])
    result: Tensor = function(hidden_TD, sequences, mode=mode, normalize=normalize)
    return result
