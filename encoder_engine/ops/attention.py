"""Attention over packed sequences: the contract, and who can fulfil it.

Dimensions: T packed tokens, H heads, K heads of key and value, D head size, B sequences, L longest
sequence.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from encoder_engine.errors import ShapeError
from encoder_engine.kernels.attention.terms import Terms
from encoder_engine.ops import cpu, gpu
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
    """What attention is chosen by.

    ``terms`` names what the call adds, as its arguments are named: ``("window", "causal")``.
    """

    head_dim: int = 64
    dropout: bool = False
    grouped_heads: bool = False
    terms: tuple[str, ...] = ()


LARGEST_TRITON_HEAD = 256


def _refuse_triton(facts: AttentionFacts) -> str | None:
    if facts.head_dim > LARGEST_TRITON_HEAD:
        return f"its heads are at most {LARGEST_TRITON_HEAD} wide, these are {facts.head_dim}"
    return gpu.refuse_triton(facts)


def _refuse_native(facts: AttentionFacts) -> str | None:
    if facts.dropout:
        return "it drops no weights"
    return cpu.refuse_native(facts)


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
        Implementation(
            name="native",
            module="encoder_engine.ops.native.attention",
            refuse=_refuse_native,
            unasked=cpu.on_its_own,
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
    key_TKD: Tensor,
    value_TKD: Tensor,
    sequences: Sequences,
    *,
    scale: float | None = None,
    dropout: float = 0.0,
    window: int | None = None,
    causal: bool = False,
    alibi_slopes_H: Tensor | None = None,
    implementation: str | None = None,
) -> Tensor:
    """Attend within each sequence, in both directions; no token sees another sequence.

    For each sequence s: ``softmax(scale * q_s @ k_s.T + terms) @ v_s`` per head (Vaswani et al.
    2017).

    ``query_THD``: [T, H, D]; ``key_TKD``, ``value_TKD``: [T, K, D], where K divides H and query
    heads share key heads in order (Ainslie et al. 2023); one dtype and device. ``scale`` defaults
    to ``D ** -0.5``. ``dropout`` is the probability with which a weight is dropped.

    ``window``: how many tokens a token sees to either side of itself, of those there are:
    ModernBERT's ``local_attention // 2``, Longformer's ``attention_window // 2``. None: all.
    ``causal``: no token sees a later one. ``alibi_slopes_H``: [H] in float32 (float64 for
    float64), constants; ``slope * |key's place - query's place|`` is taken off each score (Press et
    al. 2022, in both directions).

    Returns [T, H, D] in the input's dtype; statistics are kept in float32 or wider. Backward sums
    in a fixed order, without atomics: the same bits on every run, with nothing to ask for.

    Raises :class:`ShapeError`.
    """
    _check_rows(query_THD, key_TKD, sequences)
    if value_TKD.shape != key_TKD.shape:
        raise ShapeError(f"value is {list(value_TKD.shape)}, key is {list(key_TKD.shape)}")
    check_alike(query_THD, key=key_TKD, value=value_TKD)
    check_probability(dropout)
    terms = _terms(query_THD, scale, dropout, window, causal, alibi_slopes_H)
    facts = _facts(terms, query_THD, key_TKD, value_TKD)
    function = _ATTENTION.find(facts, implementation)
    result: Tensor = function(query_THD, key_TKD, value_TKD, sequences, terms)
    return result


def attention_probabilities(
    query_THD: Tensor,
    key_TKD: Tensor,
    sequences: Sequences,
    *,
    scale: float | None = None,
    window: int | None = None,
    causal: bool = False,
    alibi_slopes_H: Tensor | None = None,
    implementation: str | None = None,
) -> Tensor:
    """Compute the attention weights themselves, for analysis; :func:`attention` never does.

    Takes what :func:`attention` takes and returns [B, H, L, L], zero outside each sequence.
    """
    _check_rows(query_THD, key_TKD, sequences)
    check_alike(query_THD, key=key_TKD)
    terms = _terms(query_THD, scale, 0.0, window, causal, alibi_slopes_H)
    function = _PROBABILITIES.find(_facts(terms, query_THD, key_TKD), implementation)
    result: Tensor = function(query_THD, key_TKD, sequences, terms)
    return result


def _facts(terms: Terms, *tensors: Tensor) -> AttentionFacts:
    query_THD, key_TKD = tensors[:2]
    return AttentionFacts(
        **tensor_facts(*tensors),
        head_dim=query_THD.shape[2],
        dropout=terms.dropout > 0.0,
        grouped_heads=key_TKD.shape[1] != query_THD.shape[1],
        terms=terms.names(),
    )


def _terms(
    query_THD: Tensor,
    scale: float | None,
    dropout: float,
    window: int | None,
    causal: bool,
    alibi_slopes_H: Tensor | None,
) -> Terms:
    if window is not None and (not isinstance(window, int) or window < 0):
        raise ShapeError(f"window must be a number of tokens, 0 or more, or None, got {window}")
    _check_slopes(alibi_slopes_H, query_THD)
    return Terms(
        scale=query_THD.shape[2] ** -0.5 if scale is None else scale,
        dropout=dropout,
        window=window,
        causal=causal,
        slopes_H=alibi_slopes_H,
    )


def _check_slopes(slopes_H: Tensor | None, query_THD: Tensor) -> None:
    if slopes_H is None:
        return
    wide = "torch.float64" if str(query_THD.dtype) == "torch.float64" else "torch.float32"
    if slopes_H.shape != query_THD.shape[1:2] or str(slopes_H.dtype) != wide:
        raise ShapeError(
            f"alibi_slopes must be {wide} [{query_THD.shape[1]}], one for each head of "
            f"{query_THD.dtype} queries, got {slopes_H.dtype} {list(slopes_H.shape)}"
        )
    if slopes_H.device != query_THD.device:
        raise ShapeError(f"alibi_slopes is on {slopes_H.device}, query on {query_THD.device}")
    if slopes_H.requires_grad:
        raise ShapeError("alibi_slopes are constants and get no gradient; detach() them")


def _check_rows(query_THD: Tensor, key_TKD: Tensor, sequences: Sequences) -> None:
    if query_THD.dim() != 3 or key_TKD.dim() != 3:
        raise ShapeError(
            f"query must be [T, H, D] and key [T, K, D], got {list(query_THD.shape)} and "
            f"{list(key_TKD.shape)}"
        )
    if query_THD.shape[0] != key_TKD.shape[0] or query_THD.shape[2] != key_TKD.shape[2]:
        raise ShapeError(
            f"query is {list(query_THD.shape)} and key {list(key_TKD.shape)}; their rows and head "
            "sizes must be the same"
        )
    if key_TKD.shape[1] == 0 or query_THD.shape[1] % key_TKD.shape[1]:
        raise ShapeError(
            f"query has {query_THD.shape[1]} heads, key {key_TKD.shape[1]}; the second number must "
            "divide the first"
        )
    if query_THD.shape[0] != sequences.num_tokens:
        raise ShapeError(
            f"query has {len(query_THD)} rows, the sequences hold {sequences.num_tokens} tokens"
        )
