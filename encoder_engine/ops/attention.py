"""Attention over packed sequences: the contract, and who can fulfil it.

Dimensions: T packed tokens, H heads, D head size, B sequences, L longest sequence.
"""

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

    from encoder_engine.packing import Sequences

__all__ = ["attention", "attention_probabilities"]


@dataclass(frozen=True, kw_only=True)
class AttentionFacts(Facts):
    """What attention is chosen by."""

    head_dim: int = 64
    dropout: bool = False


LARGEST_TRITON_HEAD = 256


def _refuse_triton(facts: AttentionFacts) -> str | None:
    if facts.head_dim > LARGEST_TRITON_HEAD:
        return f"its heads are at most {LARGEST_TRITON_HEAD} wide, these are {facts.head_dim}"
    return gpu.refuse_triton(facts)


_ATTENTION = Operation(
    "attention",
    AttentionFacts,
    (
        Implementation(
            name="triton",
            module="encoder_engine.kernels.attention.operator",
            refuse=_refuse_triton,
            unasked=gpu.on_its_own,
        ),
        Implementation(name="aten", module="encoder_engine.ops.aten.attention"),
        Implementation(name="reference", module="encoder_engine.kernels.attention.reference"),
    ),
)
_PROBABILITIES = Operation(
    "attention_probabilities",
    AttentionFacts,
    (
        Implementation(name="aten", module="encoder_engine.ops.aten.attention"),
        Implementation(name="reference", module="encoder_engine.kernels.attention.reference"),
    ),
)


def attention(
    query_THD: Tensor,
    key_THD: Tensor,
    value_THD: Tensor,
    sequences: Sequences,
    *,
    scale: float | None = None,
    dropout: float = 0.0,
    implementation: str | None = None,
) -> Tensor:
    """Attend bidirectionally within each sequence; no token sees another sequence.

    For each sequence s: ``softmax(scale * q_s @ k_s.T) @ v_s`` per head (Vaswani et al. 2017).

    ``query_THD``, ``key_THD``, ``value_THD``: [T, H, D], one dtype and device. ``scale`` defaults
    to ``D ** -0.5``. ``dropout`` is the probability with which a weight is dropped. Returns
    [T, H, D] in the input's dtype; statistics are kept in float32 or wider.

    Raises :class:`ShapeError`.
    """
    _check(query_THD, key_THD, sequences)
    if value_THD.shape != query_THD.shape or value_THD.dtype != query_THD.dtype:
        raise ShapeError(
            f"value is {value_THD.dtype} {list(value_THD.shape)}, "
            f"query is {query_THD.dtype} {list(query_THD.shape)}"
        )
    check_alike(query_THD, key=key_THD, value=value_THD)
    check_probability(dropout)
    facts = AttentionFacts(
        **tensor_facts(query_THD, key_THD, value_THD),
        head_dim=query_THD.shape[2],
        dropout=dropout > 0.0,
    )
    scale = query_THD.shape[2] ** -0.5 if scale is None else scale
    function = _ATTENTION.find(facts, implementation)
    result: Tensor = function(
        query_THD, key_THD, value_THD, sequences, scale=scale, dropout=dropout
    )
    return result


def attention_probabilities(
    query_THD: Tensor,
    key_THD: Tensor,
    sequences: Sequences,
    *,
    scale: float | None = None,
    implementation: str | None = None,
) -> Tensor:
    """Compute the attention weights themselves, for analysis; :func:`attention` never does.

    Takes what :func:`attention` takes and returns [B, H, L, L], zero outside each sequence.
    """
    _check(query_THD, key_THD, sequences)
    facts = AttentionFacts(**tensor_facts(query_THD, key_THD), head_dim=query_THD.shape[2])
    scale = query_THD.shape[2] ** -0.5 if scale is None else scale
    function = _PROBABILITIES.find(facts, implementation)
    result: Tensor = function(query_THD, key_THD, sequences, scale=scale)
    return result


def _check(query_THD: Tensor, key_THD: Tensor, sequences: Sequences) -> None:
    if query_THD.dim() != 3 or key_THD.shape != query_THD.shape or key_THD.dtype != query_THD.dtype:
        raise ShapeError(
            f"query and key must both be [T, H, D] of one dtype, got {query_THD.dtype} "
            f"{list(query_THD.shape)} and {key_THD.dtype} {list(key_THD.shape)}"
        )
    if len(query_THD) != sequences.num_tokens:
        raise ShapeError(
            f"query has {len(query_THD)} rows, the sequences hold {sequences.num_tokens} tokens"
        )
