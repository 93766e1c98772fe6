"""Attention over packed sequences: the public functions, and the choice of an implementation.

Dimensions: T packed tokens, M of them that are queries, H heads, K heads of key and value, D head
size, B sequences, L longest sequence, R entries of a relative bias.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from encoder_engine.dataclass import dataclass
from encoder_engine.errors import ShapeError
from encoder_engine.kernels.attention.terms import Disentangled, Terms
from encoder_engine.ops import cpu, gpu
from encoder_engine.ops.registry import (
    CallFacts,
    Operation,
    autocast,
    check_alike,
    check_device,
    check_probability,
    plain,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch import Tensor

    from encoder_engine.packing import SelectedRows, Sequences

__all__ = ["Disentangled", "attention", "attention_probabilities"]


@dataclass(frozen=True, kw_only=True)
class AttentionFacts(CallFacts):
    """The facts of a call by which an implementation of attention is chosen.

    ``terms``: the names of the optional arguments of the call, such as ``("window", "causal")``.
    ``equal_length``: the sequences' length, if all have the same, the batch has 8,192 tokens or
    more, the GPU is an H100 or H200, and torch.compile does not trace; else 0.
    """

    head_dim: int = 64
    dropout: bool = False
    grouped_heads: bool = False
    terms: tuple[str, ...] = ()
    equal_length: int = 0


LARGEST_TRITON_HEAD = 256
# Sizes of heads, and lengths of equal sequences, at which SDPA, which calls cuDNN, took an H200
# 0.71 to 0.97 times as long as the Triton kernels (benchmarks/results/nvidia-h200.jsonl:
# forward-equal of attention, attention_2k, attention_8k and attention_d128, in bfloat16, 8,192
# tokens and more).
EQUAL_LENGTHS = {64: (512, 2048, 8192), 128: (2048,)}
MIN_EQUAL_TOKENS = 8192


def _is_triton_automatic(facts: AttentionFacts) -> bool:
    """Return whether Triton's kernels may be chosen automatically: not where cuDNN's are faster.

    With gradients they may: cuDNN's kernels, which took 0.67 to 0.93 times as long, promise no
    fixed order of sums.
    """
    by_cudnn = (
        facts.equal_length in EQUAL_LENGTHS.get(facts.head_dim, ())
        and facts.dtype == "bfloat16"
        and not (facts.requires_grad or facts.dropout or facts.grouped_heads or facts.terms)
    )
    return gpu.is_automatic(facts) and not by_cudnn


def equal_length_of(query_THD: Tensor, sequences: Sequences) -> int:
    """Return the length that all sequences share, or 0: see :class:`AttentionFacts`."""
    # A compiled graph computes other lengths too.
    if torch.compiler.is_compiling() or not gpu.is_hopper(query_THD):
        return 0
    return sequences.common_length if sequences.num_tokens >= MIN_EQUAL_TOKENS else 0


def _refuse_triton(facts: AttentionFacts) -> str | None:
    if facts.head_dim > LARGEST_TRITON_HEAD:
        return f"its heads are at most {LARGEST_TRITON_HEAD} wide, these are {facts.head_dim}"
    if {"disentangled", "global_rows"} <= set(facts.terms):
        return "it does not implement disentangled attention with global rows"
    return gpu.refuse_triton(facts)


def refuse_native(facts: AttentionFacts) -> str | None:
    """Return why the native kernel for inference cannot take the call; None: it can."""
    if facts.dropout:
        return "it drops no weights"
    if {"disentangled", "global_rows"} <= set(facts.terms):
        return "it does not implement disentangled attention with global rows"
    return cpu.refuse_native(facts)


def _refuse_native(facts: AttentionFacts) -> str | None:
    if {"disentangled", "global_rows"} <= set(facts.terms):
        return "it does not implement disentangled attention with global rows"
    for term, words in (("disentangled", "disentangled attention"), ("global_rows", "global rows")):
        if term in facts.terms and facts.dropout:
            return f"it drops no weights of {words}"
        if term in facts.terms and facts.requires_grad:
            return f"it computes no gradients of {words}"
    return cpu.refuse_trained(facts)


_ATTENTION = Operation(
    "attention",
    AttentionFacts,
    (
        gpu.triton("attention", _refuse_triton, _is_triton_automatic),
        cpu.native("attention", _refuse_native),
        *plain("attention"),
    ),
)
_PROBABILITIES = Operation(
    "attention_probabilities",
    AttentionFacts,
    plain("attention"),
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
    relative_bias_HR: Tensor | None = None,
    disentangled: Disentangled | None = None,
    query_rows: SelectedRows | None = None,
    global_rows: SelectedRows | None = None,
    implementation: str | None = None,
) -> Tensor:
    """Compute bidirectional attention within each sequence; no token attends to another sequence.

    For each sequence s and head: ``softmax(scale * q_s @ k_s.T + terms) @ v_s`` (Vaswani et al.
    2017).

    ``query_THD``: [T, H, D].
    ``key_TKD``, ``value_TKD``: [T, K, D], K divides H; query heads share key heads in order
    (Ainslie et al. 2023); one dtype and device with the query.
    ``scale``: the factor of the scores; default ``D ** -0.5``.
    ``dropout``: the probability of dropping an attention weight.
    ``window``: the number of tokens that a token attends to on either side: ModernBERT's
    ``local_attention // 2``, Longformer's ``attention_window // 2``. None: all.
    ``causal``: no token attends to a later one.
    ``alibi_slopes_H``: constants [H] in float32 (float64 for float64); ``slope * abs(d)`` is
    subtracted, d the key's position minus the query's (Press et al. 2022, in both directions).
    ``relative_bias_HR``: [H, 2 r + 1] in the query's dtype or float32; adds
    ``bias[clamp(d, -r, r) + r]``; has a gradient. ``table_NH[relative_position_buckets(..)].T``
    makes one of T5's or MPNet's buckets.
    ``disentangled``: vectors of distances, multiplied by query and key (DeBERTa; He et al. 2021)
    under the same ``scale``; :func:`log_position_entries` maps distances to vectors. Its entries
    must be 0 to N - 1: on a CPU they are checked; on a GPU the check would wait for the device, and
    an entry out of range reads other memory, or ends the process. On a GPU, ``aten`` sums the
    vectors' gradients by atomics.
    ``query_rows``: the query and the result have only these M rows, [M, H, D].
    ``global_rows``: with a ``window``, rows that attend to every token of their sequence and that
    every token attends to. For global rows with projections of their own (Longformer), call again
    with ``query_rows=global_rows`` and write the result over theirs.

    Returns [T, H, D] in the input's dtype, under autocast in autocast's; statistics are in float32
    or wider. Backward sums in a fixed order without atomics, by ``triton`` and on a CPU:
    bit-reproducible by default. Without gradients and terms, an H100 or H200 computes bfloat16
    sequences of one length by ``aten`` (cuDNN) by default, at lengths where this was faster on an
    H200. Raises :class:`ShapeError`.
    """
    check_rows(query_THD, key_TKD, sequences, query_rows)
    check_values(query_THD, key_TKD, value_TKD)
    check_probability(dropout)
    terms = Terms(
        query_THD.shape[2] ** -0.5 if scale is None else scale,
        dropout,
        window,
        causal,
        alibi_slopes_H,
        relative_bias_HR,
        query_rows,
        global_rows,
        disentangled,
    )
    check_terms(terms, query_THD, sequences)
    query_THD, key_TKD, value_TKD = autocast(query_THD, key_TKD, value_TKD)
    function = find_attention(
        *(_ATTENTION, implementation, terms, query_THD, key_TKD, value_TKD),
        equal_length=equal_length_of(query_THD, sequences),
    )
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
    relative_bias_HR: Tensor | None = None,
    disentangled: Disentangled | None = None,
    global_rows: SelectedRows | None = None,
    implementation: str | None = None,
) -> Tensor:
    """Compute the attention weights, for analysis; :func:`attention` never stores them.

    Arguments are those of :func:`attention`. Returns [B, H, L, L] in the query's dtype, zero
    outside each sequence. Raises :class:`ShapeError`.
    """
    check_rows(query_THD, key_TKD, sequences, None)
    check_alike(query_THD, key=key_TKD)
    terms = Terms(
        query_THD.shape[2] ** -0.5 if scale is None else scale,
        0.0,
        window,
        causal,
        alibi_slopes_H,
        relative_bias_HR,
        None,
        global_rows,
        disentangled,
    )
    check_terms(terms, query_THD, sequences)
    function = find_attention(_PROBABILITIES, implementation, terms, query_THD, key_TKD)
    result: Tensor = function(query_THD, key_TKD, sequences, terms)
    return result


def find_attention(
    operation: Operation,
    implementation: str | None,
    terms: Terms,
    *tensors: Tensor,
    equal_length: int = 0,
) -> Callable[..., Any]:
    (_, num_heads, head_dim), (_, num_key_heads, _) = (x.shape for x in tensors[:2])
    return operation.find(
        implementation,
        *(*tensors, terms.bias_HR, *(terms.disentangled or ())[:2]),
        head_dim=head_dim,
        dropout=terms.dropout > 0.0,
        grouped_heads=num_key_heads != num_heads,
        terms=terms.names(),
        equal_length=equal_length,
    )


def check_terms(terms: Terms, query_THD: Tensor, sequences: Sequences) -> None:
    window = terms.window
    if window is not None and (not isinstance(window, int) or window < 0):
        raise ShapeError(f"window must be a number of tokens, 0 or more, or None, got {window}")
    _check_slopes(terms.slopes_H, query_THD)
    _check_bias(terms.bias_HR, query_THD)
    _check_disentangled(terms.disentangled, query_THD)
    if terms.global_rows is None:
        return
    if window is None:
        raise ShapeError("global_rows need a window; without one every row sees every other")
    if terms.causal:
        raise ShapeError("global_rows attend to later tokens, which causal forbids; pass only one")
    terms.global_rows.check_of(sequences, "global_rows")


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


def _check_bias(bias_HR: Tensor | None, query_THD: Tensor) -> None:
    if bias_HR is None:
        return
    num_heads = query_THD.shape[1]
    fits = bias_HR.dim() == 2 and bias_HR.shape[0] == num_heads
    if not fits or bias_HR.shape[1] < 3 or bias_HR.shape[1] % 2 == 0:
        raise ShapeError(
            f"relative_bias must be [{num_heads}, 2 r + 1], a head's entries for the distances -r "
            f"to r, r at least 1, got {list(bias_HR.shape)}"
        )
    if bias_HR.dtype != query_THD.dtype and str(bias_HR.dtype) != "torch.float32":
        raise ShapeError(
            f"relative_bias must be {query_THD.dtype}, as the query is, or torch.float32, "
            f"got {bias_HR.dtype}"
        )
    if bias_HR.device != query_THD.device:
        raise ShapeError(f"relative_bias is on {bias_HR.device}, query on {query_THD.device}")


def _check_disentangled(terms: Disentangled | None, query_THD: Tensor) -> None:
    if terms is None:
        return
    vectors = [x for x in (terms.key_NHD, terms.query_NHD) if x is not None]
    if not vectors:
        raise ShapeError("disentangled has neither key nor query; leave it out")
    for x in vectors:
        if x.dim() != 3 or x.shape[1:] != query_THD.shape[1:] or x.shape != vectors[0].shape:
            raise ShapeError(
                f"disentangled key and query must be [N, {query_THD.shape[1]}, "
                f"{query_THD.shape[2]}], with the heads of the query, got {list(x.shape)}"
            )
    check_alike(query_THD, disentangled_key=terms.key_NHD, disentangled_query=terms.query_NHD)
    entries = terms.entries_R
    if str(entries.dtype) != "torch.int64" or entries.dim() != 1 or entries.shape[0] % 2 == 0:
        raise ShapeError(
            f"disentangled entries must be int64 [2 r + 1], one for each of the distances -r to r, "
            f"got {entries.dtype} {list(entries.shape)}"
        )
    if entries.device != query_THD.device:
        raise ShapeError(
            f"disentangled entries are on {entries.device}, query on {query_THD.device}"
        )
    if entries.device.type != "cpu":
        return
    # Some 6 us. PyTorch would count a negative entry from the end, the native kernel clamp it.
    lowest, highest = (int(x) for x in entries.aminmax())
    if lowest < 0 or highest >= len(vectors[0]):
        raise ShapeError(
            f"disentangled entries must be 0 to {len(vectors[0]) - 1}, as there are "
            f"{len(vectors[0])} vectors, got {lowest} to {highest}; log_position_entries makes them"
        )


def check_values(query_THD: Tensor, key_TKD: Tensor, value_TKD: Tensor) -> None:
    if value_TKD.shape != key_TKD.shape:
        raise ShapeError(f"value is {list(value_TKD.shape)}, key is {list(key_TKD.shape)}")
    check_alike(query_THD, key=key_TKD, value=value_TKD)


def check_rows(
    query_THD: Tensor, key_TKD: Tensor, sequences: Sequences, query_rows: SelectedRows | None
) -> None:
    if query_THD.dim() != 3 or key_TKD.dim() != 3 or query_THD.shape[2] != key_TKD.shape[2]:
        raise ShapeError(
            f"query must be [T, H, D] and key [T, K, D], got {list(query_THD.shape)} and "
            f"{list(key_TKD.shape)}"
        )
    if key_TKD.shape[1] == 0 or query_THD.shape[1] % key_TKD.shape[1]:
        raise ShapeError(
            f"query has {query_THD.shape[1]} heads, key {key_TKD.shape[1]}; the second number must "
            "divide the first"
        )
    check_device(query_THD, cu_seqlens=sequences.cu_seqlens)
    # Not len(): it would specialise symbolic sizes.
    num_queries = sequences.num_tokens
    if query_rows is not None:
        query_rows.check_of(sequences, "query_rows")
        num_queries = query_rows.rows.shape[0]
    for name, rows, expected in (
        ("query", query_THD.shape[0], num_queries),
        ("key", key_TKD.shape[0], sequences.num_tokens),
    ):
        if rows != expected:
            what = "query_rows" if query_rows is not None and name == "query" else "the sequences"
            raise ShapeError(f"{name} has {rows} rows, {what} hold {expected} tokens")
