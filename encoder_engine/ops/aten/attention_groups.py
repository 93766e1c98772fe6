"""Packed attention by SDPA, one call for all sequences of equal length: no padding."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import torch
import torch.nn.functional as F  # noqa: N812

from encoder_engine.ops.aten.linear import fill_blocks

if TYPE_CHECKING:
    from torch import Tensor

    from encoder_engine.kernels.attention.terms import Terms
    from encoder_engine.packing import Sequences


class Group(NamedTuple):
    """The n sequences of one length L in a packed batch, each with Q queries."""

    length: int
    rows: Tensor | slice  # their n * L rows of key and value
    num_queries: int
    queries: Tensor | slice  # their n * Q rows of the query
    places: Tensor | None  # int64 [n, Q] of the queries in their sequences; None: 0 .. L - 1 of all


def groups_of(sequences: Sequences, terms: Terms) -> list[Group]:
    """Group the sequences by length, one SDPA call each; sequences without a query are left out."""
    if terms.query_rows is None:
        return [Group(n, rows, n, rows, None) for n, _, rows in sequences.length_groups]
    return [
        Group(g.length, g.rows, g.places.shape[1], g.selected, g.places)
        for g in terms.query_rows.groups
    ]


def attend_group(
    group: Group, query_nHQD: Tensor, key_nKLD: Tensor, value_nKLD: Tensor, terms: Terms
) -> Tensor:
    """Call SDPA for a group; return the attention output, [n * Q, H, D]."""
    mask = mask_of(group, terms, query_nHQD)
    if terms.disentangled is not None:
        mask = add_mask(position_scores(group, terms, query_nHQD, key_nKLD), mask)
    output_nHQD = _attend(query_nHQD, key_nKLD, value_nKLD, mask, terms)
    num_heads, head_dim = output_nHQD.shape[1], output_nHQD.shape[3]
    return output_nHQD.transpose(1, 2).reshape(-1, num_heads, head_dim)


def taken(packed_THD: Tensor, rows: Tensor | slice, length: int) -> Tensor:
    """Gather the rows of a group's n sequences from packed [T, H, D], as [n, H, L, D].

    ``rows``: the indices of their n * L rows; ``length``: L.
    """
    return packed_THD[rows].view(-1, length, *packed_THD.shape[1:]).transpose(1, 2)


def mask_of(group: Group, terms: Terms, like: Tensor) -> Tensor | None:
    """Return a group's mask for SDPA, [1 or n, 1 or H, Q, L]: additive, bool (True: kept) or None.

    The relative bias is looked up as an embedding, whose backward has no atomics.
    """
    if not set(terms.names()) - {"query_rows", "disentangled"}:
        return None
    distance_nQL = distances_of(group, like)
    seen = torch.ones_like(distance_nQL, dtype=torch.bool)[:, None]
    if terms.window is not None:
        seen = (distance_nQL.abs() <= terms.window)[:, None]
    if terms.global_rows is not None:
        seen = seen | _sees_everywhere(group, terms, like)
    if terms.causal:
        seen = seen & (distance_nQL <= 0)[:, None]
    added = None
    if terms.slopes_H is not None:
        added = (-terms.slopes_H[:, None, None] * distance_nQL.abs()[:, None]).to(like.dtype)
    if terms.bias_HR is not None:
        entries_nQL = entries_of(distance_nQL, terms.bias_HR)
        table_RH = terms.bias_HR.T.to(like.dtype)
        bias = F.embedding(entries_nQL, table_RH).permute(0, 3, 1, 2)
        added = bias if added is None else added + bias
    return seen if added is None else added.masked_fill(~seen, -torch.inf)


def distances_of(group: Group, like: Tensor) -> Tensor:
    """Return key position minus query position for a group's sequences, int64 [1 or n, Q, L]."""
    places = torch.arange(group.length, device=like.device)
    queries = places[None] if group.places is None else group.places
    return places - queries[:, :, None]


def position_scores(group: Group, terms: Terms, query_nHQD: Tensor, key_nKLD: Tensor) -> Tensor:
    """Return the scores of disentangled attention's position terms, [n, H, Q, L]."""
    assert terms.disentangled is not None
    key_NHD, query_NHD, entries_R = terms.disentangled
    num_sequences, num_heads = query_nHQD.shape[:2]
    reach = len(entries_R) // 2
    entries_nQL = entries_R[distances_of(group, query_nHQD).clamp(-reach, reach) + reach]
    entries = entries_nQL[:, None].expand(num_sequences, num_heads, -1, -1)
    scores_of_terms = []
    if key_NHD is not None:
        scores_of_terms.append(_scores_of_vectors(query_nHQD, key_NHD).gather(3, entries))
    if query_NHD is not None:
        key_nHLD = key_nKLD.repeat_interleave(num_heads // key_nKLD.shape[1], 1)
        scores_of_terms.append(_scores_of_vectors(key_nHLD, query_NHD).gather(3, entries.mT).mT)
    scores: Tensor = terms.scale * sum(scores_of_terms[1:], scores_of_terms[0])
    return scores


def _scores_of_vectors(rows_nHLD: Tensor, vectors_NHD: Tensor) -> Tensor:
    """Return the product of each row with each vector, [n, H, L, N].

    Both are made contiguous for any n. Of views, matmul copies those of several sequences but not
    those of one, and MKL then sums the rows of one or two tokens in another order. A single head of
    one sequence is computed twice: a batch of 1 calls another, multi-threaded MKL routine.
    """
    rows_nHLD, vectors_HND = fill_blocks(
        rows_nHLD.contiguous(), vectors_NHD.to(rows_nHLD.dtype).transpose(0, 1)
    )
    vectors_HDN = vectors_HND.mT
    if rows_nHLD.shape[:2] == (1, 1) and not torch.is_grad_enabled():
        return (rows_nHLD.expand(2, -1, -1, -1) @ vectors_HDN.contiguous())[:1]
    return rows_nHLD @ vectors_HDN.contiguous()


def entries_of(distance: Tensor, bias_HR: Tensor) -> Tensor:
    """Return each distance's column in the relative bias; out of reach, the first or last."""
    reach = bias_HR.shape[1] // 2
    return distance.clamp(-reach, reach) + reach


def _sees_everywhere(group: Group, terms: Terms, like: Tensor) -> Tensor:
    """Return where query or key has global attention, bool [n, 1, Q, L]."""
    assert terms.global_rows is not None
    num_rows = terms.global_rows.sequences.num_tokens
    everywhere_T = torch.zeros(num_rows, dtype=torch.bool, device=like.device)
    everywhere_T[terms.global_rows.rows] = True
    keys_nL = everywhere_T[group.rows].view(-1, group.length)
    queries_nQ = keys_nL if group.places is None else keys_nL.gather(1, group.places)
    return (keys_nL[:, None, :] | queries_nQ[:, :, None])[:, None]


def add_mask(scores: Tensor, mask: Tensor | None) -> Tensor:
    """Apply a mask of :func:`mask_of`: add an additive one; where a bool one is False, set -inf."""
    if mask is None:
        return scores
    return scores.masked_fill(~mask, -torch.inf) if mask.dtype == torch.bool else scores + mask


def _attend(
    query_nHQD: Tensor, key_nKLD: Tensor, value_nKLD: Tensor, mask: Tensor | None, terms: Terms
) -> Tensor:
    """Call SDPA so that, on a CPU, a sequence's bits do not depend on the other sequences.

    Otherwise they would depend on them in two cases: rows that are not aligned to vectors, since
    the alignment depends on the rows before; and a single head of one sequence, which MKL splits
    among threads. With gradients or dropout they may depend on them.
    """
    num_sequences, num_heads, _, head_dim = query_nHQD.shape
    group = num_heads // key_nKLD.shape[1]
    if group > 1:
        key_nKLD, value_nKLD = (x.repeat_interleave(group, 1) for x in (key_nKLD, value_nKLD))
    tensors = [query_nHQD, key_nKLD, value_nKLD]
    invariant = query_nHQD.device.type == "cpu" and not torch.is_grad_enabled()
    # With dropout, what is dropped would then depend on whether gradients are computed.
    invariant = invariant and terms.dropout == 0.0
    if invariant and (head_dim % 4 or head_dim < 12):
        tensors = [F.pad(x, (0, -head_dim % 16)) for x in tensors]
    if invariant and num_sequences * num_heads == 1:
        tensors = [x.expand(2, -1, -1, -1) for x in tensors]
    query, key, value = tensors
    output = F.scaled_dot_product_attention(
        query, key, value, attn_mask=mask, dropout_p=terms.dropout, scale=terms.scale
    )
    return output[:num_sequences, ..., :head_dim]
