"""Attention with statistics of its weights, computed without storing the weights.

Dimensions: T packed tokens, H heads, K heads of keys, D head size, C marks, which are boolean
properties of tokens.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import torch

from encoder_engine.errors import ShapeError
from encoder_engine.kernels.attention.terms import Disentangled, Terms
from encoder_engine.ops import cpu
from encoder_engine.ops.attention import (
    AttentionFacts,
    check_rows,
    check_terms,
    check_values,
    find_attention,
    refuse_native,
)
from encoder_engine.ops.registry import Implementation, Operation, autocast, plain

if TYPE_CHECKING:
    from torch import Tensor

    from encoder_engine.packing import SelectedRows, Sequences

__all__ = ["AttentionStatistics", "attention_statistics"]

_STATISTICS = Operation(
    "attention_statistics",
    AttentionFacts,
    (
        cpu.native("attention_statistics", refuse_native),
        plain("attention_statistics")[0],
        Implementation(
            name="reference", module="encoder_engine.kernels.attention.statistics_reference"
        ),
    ),
)


class AttentionStatistics(NamedTuple):
    """Statistics of the weights of each query and head, in float32 or wider.

    maximum_TH: the greatest weight.
    offset_TH: the position of the greatest weight's key minus the query's, int64; of several equal
        weights, the first key counts.
    entropy_TH: the entropy of the weights, in nats.
    distance_TH: the weighted mean distance between query and key, in tokens.
    near_THO: the weights of the token before the query, of its own token and of the next,
        [T, H, 3]; 0 where the sequence has no such token.
    marked_THC: the summed weights of the keys with each mark.
    """

    maximum_TH: Tensor
    offset_TH: Tensor
    entropy_TH: Tensor
    distance_TH: Tensor
    near_THO: Tensor
    marked_THC: Tensor


def attention_statistics(
    query_THD: Tensor,
    key_TKD: Tensor,
    value_TKD: Tensor,
    sequences: Sequences,
    marks_TC: Tensor,
    *,
    scale: float | None = None,
    window: int | None = None,
    causal: bool = False,
    alibi_slopes_H: Tensor | None = None,
    relative_bias_HR: Tensor | None = None,
    disentangled: Disentangled | None = None,
    global_rows: SelectedRows | None = None,
    implementation: str | None = None,
) -> tuple[Tensor, AttentionStatistics]:
    """Compute attention and statistics of its weights, of which only a tile exists at a time.

    Equals :func:`attention` and the statistics of :func:`attention_probabilities`, in memory that
    grows with T. On a CPU, one pass over the keys computes both.

    ``marks_TC``: bool [T, C]; the marks of each token as a key, such as "is a separator".
    Other arguments are those of :func:`attention`. No gradient is computed.

    Returns the output of :func:`attention`, [T, H, D], and the statistics. Raises
    :class:`ShapeError`.
    """
    check_rows(query_THD, key_TKD, sequences, None)
    check_values(query_THD, key_TKD, value_TKD)
    if marks_TC.dim() != 2 or marks_TC.shape[0] != query_THD.shape[0]:
        raise ShapeError(
            f"marks must be [{query_THD.shape[0]}, C], a row for each token, got "
            f"{list(marks_TC.shape)}"
        )
    if str(marks_TC.dtype) != "torch.bool" or marks_TC.device != query_THD.device:
        raise ShapeError(
            f"marks must be torch.bool on {query_THD.device}, got {marks_TC.dtype} on "
            f"{marks_TC.device}"
        )
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
    with torch.no_grad():
        operands = autocast(query_THD, key_TKD, value_TKD)
        function = find_attention(_STATISTICS, implementation, terms, *operands)
        output_THD, *found = function(*operands, sequences, marks_TC, terms)
    return output_THD, AttentionStatistics(*found)
