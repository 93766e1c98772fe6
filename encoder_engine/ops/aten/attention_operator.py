"""Packed attention by SDPA as one operator for torch.compile, with its gradient."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import torch

from encoder_engine.kernels.attention.differentiable import Call, Gradients, define_operator
from encoder_engine.kernels.attention.terms import Terms
from encoder_engine.ops.aten.attention_calls import attend
from encoder_engine.ops.aten.attention_groups import (
    Group,
    add_mask,
    distances_of,
    entries_of,
    groups_of,
    mask_of,
    taken,
)
from encoder_engine.packing import SelectedRows, Sequences
from encoder_engine.packing.selection import assemble_rows

if TYPE_CHECKING:
    from collections.abc import Iterator

    from torch import Tensor

# Scores in memory at a time in backward, unless one sequence alone has more.
MOST_SCORES = 2**24


class _Part(NamedTuple):
    """Attention weights of n sequences of equal length, with the query, key and value behind them.

    All are float32, or float64 for float64 inputs; keys and values are repeated for each query
    head.
    """

    group: Group
    query_nHQD: Tensor
    key_nHLD: Tensor
    value_nHLD: Tensor
    weights_nHQL: Tensor
    kept_nHQL: Tensor | None  # what each weight is multiplied by; None: nothing is dropped


def attend_traced(
    query_MHD: Tensor, key_TKD: Tensor, value_TKD: Tensor, sequences: Sequences, terms: Terms
) -> Tensor:
    """Compute attention by a custom operator, which torch.compile need not trace into.

    The operator gets the sequences' offsets and the selected rows as tensors.
    """
    nothing = sequences.cu_seqlens[:0]
    rows, cu_queries, everywhere = nothing, nothing, nothing
    if terms.query_rows is not None:
        rows, cu_queries = terms.query_rows.rows, terms.query_rows.within.cu_seqlens
    if terms.global_rows is not None:
        everywhere = terms.global_rows.rows
    layout = [sequences.cu_seqlens, rows, cu_queries, everywhere]
    output: Tensor = _attend_traced(query_MHD, key_TKD, value_TKD, layout, terms)
    return output


def _forward(call: Call) -> tuple[Tensor, Tensor]:
    sequences, terms = _read(call)
    query, key, value = call[:3]
    if call.dropout == 0.0 or not groups_of(sequences, terms):
        output = attend(query, key, value, sequences, terms).contiguous()
    else:
        # SDPA would not say which weights it dropped.
        output = torch.empty_like(query, memory_format=torch.contiguous_format)
        for part in _parts(call):
            mixed = _drop(part.weights_nHQL, part.kept_nHQL) @ part.value_nHLD
            output[part.group.queries] = _rows(mixed, query)
    return output, output.new_empty(0, dtype=torch.float32)


def _backward(grad_output_MHD: Tensor, _output: Tensor, _lse: Tensor, call: Call) -> Gradients:
    grad_query, grad_key, grad_value = (torch.zeros_like(x).contiguous() for x in call[:3])
    wide = torch.promote_types(call.query_MHD.dtype, torch.float32)
    bias = call.query_MHD.new_empty(0) if call.bias_HR is None else call.bias_HR
    grad_bias = torch.zeros_like(bias, dtype=wide).contiguous()
    for part in _parts(call):
        group, query, key, value, weights, kept = part
        grad = taken(grad_output_MHD, group.queries, group.num_queries).to(wide)
        grad_weights = _drop(grad @ value.mT, kept)
        delta = (weights * grad_weights).sum(dim=-1, keepdim=True)
        grad_scores = weights * (grad_weights - delta)
        grad_query[group.queries] = _rows(grad_scores @ key * call.scale, grad_query)
        grad_key[group.rows] = _rows(grad_scores.mT @ query * call.scale, grad_key)
        grad_value[group.rows] = _rows(_drop(weights, kept).mT @ grad, grad_value)
        if call.bias_HR is not None:
            entries = entries_of(distances_of(group, query), bias).expand(len(query), -1, -1)
            by_entry = grad_scores.permute(0, 2, 3, 1).contiguous()
            grad_bias += torch.ops.aten.embedding_dense_backward(
                by_entry, entries.contiguous(), bias.shape[1], -1, False
            ).T
    # Disentangled attention is not traced.
    absent = (bias.new_empty(0), bias.new_empty(0))
    return Gradients(grad_query, grad_key, grad_value, grad_bias.to(bias.dtype), *absent)


_attend_traced = define_operator("attention_aten", _forward, _backward, keeps_lse=False)


def _read(call: Call) -> tuple[Sequences, Terms]:
    """Return the sequences and terms of a call, cached because all layers of a batch share them."""
    cu_seqlens, query_rows, cu_queries, global_rows = call.layout
    sequences, queries, everywhere = _laid_out(
        _bytes(cu_seqlens),
        (_bytes(query_rows), _bytes(cu_queries)) if len(cu_queries) else None,
        _bytes(global_rows) if len(global_rows) else None,
        cu_seqlens.device,
    )
    terms = Terms(call.scale, call.dropout, call.window, call.causal, call.slopes_H, call.bias_HR)
    return sequences, terms._replace(query_rows=queries, global_rows=everywhere)


def _bytes(x: Tensor) -> bytes:
    return x.long().cpu().numpy().tobytes()


@lru_cache(maxsize=8)
def _laid_out(
    cu_seqlens: bytes,
    query_rows: tuple[bytes, bytes] | None,
    global_rows: bytes | None,
    device: torch.device,
) -> tuple[Sequences, SelectedRows | None, SelectedRows | None]:
    sequences = _sequences_of(cu_seqlens, device)
    queries, everywhere = None, None
    if query_rows is not None:
        # Queries may lie beyond their sequence's last key, so their rows do not tell the sequence.
        rows, within = _rows_of(query_rows[0]), _sequences_of(query_rows[1], device)
        starts = torch.from_numpy(np.repeat(sequences.offsets[:-1], within.lengths))
        places = (rows - starts).to(torch.int32)
        queries = assemble_rows(rows.to(device), sequences, within, places.to(device))
    if global_rows is not None:
        everywhere = SelectedRows(_rows_of(global_rows).to(device), sequences)
    return sequences, queries, everywhere


def _sequences_of(cu_seqlens: bytes, device: torch.device) -> Sequences:
    lengths = np.diff(np.frombuffer(cu_seqlens, dtype=np.int64))
    return Sequences.from_lengths(lengths.tolist(), device=device)


def _rows_of(rows: bytes) -> Tensor:
    return torch.from_numpy(np.frombuffer(rows, dtype=np.int64).copy())


def _parts(call: Call) -> Iterator[_Part]:
    """Yield the attention weights of a call in parts of bounded size.

    Dropout is drawn from the call's seed, so forward and backward get the same parts.
    """
    wide = torch.promote_types(call.query_MHD.dtype, torch.float32)
    generator = torch.Generator(call.query_MHD.device)
    if call.seed is not None:
        generator.manual_seed(int(call.seed))
    sequences, terms = _read(call)
    for group in (piece for g in groups_of(sequences, terms) for piece in _pieces(g, call)):
        query = taken(call.query_MHD, group.queries, group.num_queries).to(wide)
        key, value = (
            taken(x, group.rows, group.length).to(wide).repeat_interleave(call.group, 1)
            for x in (call.key_TKD, call.value_TKD)
        )
        mask = mask_of(group, terms, query)
        weights = torch.softmax(add_mask(query @ key.mT * call.scale, mask), dim=-1)
        kept = None
        if call.dropout > 0.0:
            drawn = torch.rand(weights.shape, generator=generator, device=weights.device)
            kept = (drawn >= call.dropout).to(wide) / (1.0 - call.dropout)
        yield _Part(group, query, key, value, weights, kept)


def _pieces(group: Group, call: Call) -> Iterator[Group]:
    """Split a group of sequences into smaller ones of at most ``MOST_SCORES`` scores each.

    A single sequence is not split, and may have more.
    """
    at_once = MOST_SCORES // (call.query_MHD.shape[1] * group.num_queries * group.length)
    rows = _indices(group.rows, call).view(-1, group.length)
    queries = _indices(group.queries, call).view(-1, group.num_queries)
    for start in range(0, len(rows), max(at_once, 1)):
        piece = slice(start, start + max(at_once, 1))
        yield group._replace(
            rows=rows[piece].reshape(-1),
            queries=queries[piece].reshape(-1),
            places=None if group.places is None else group.places[piece],
        )


def _indices(rows: Tensor | slice, call: Call) -> Tensor:
    if isinstance(rows, slice):
        return torch.arange(rows.start, rows.stop, device=call.query_MHD.device)
    return rows


def _drop(weights: Tensor, kept: Tensor | None) -> Tensor:
    return weights if kept is None else weights * kept


def _rows(x_nHLD: Tensor, like_TKD: Tensor) -> Tensor:
    """Return [n, H, L, D] as packed rows of K heads, [n * L, K, D].

    Query heads that share a key head are summed.
    """
    num_sequences, _, length, head_dim = x_nHLD.shape
    x_nKLD = x_nHLD.reshape(num_sequences, like_TKD.shape[1], -1, length, head_dim).sum(dim=2)
    rows: Tensor = x_nKLD.transpose(1, 2).reshape(-1, *like_TKD.shape[1:])
    return rows.to(like_TKD.dtype)
