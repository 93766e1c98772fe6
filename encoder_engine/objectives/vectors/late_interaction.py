"""Late interaction (ColBERT): compares each query token with its most similar document token.

T tokens of B queries, S tokens of C documents, D features. Offsets are int64 [B + 1] and [C + 1] on
the host: the first token of each text, then the number of tokens.

How it works: similarities of a tile of queries with all documents are computed one chunk of
documents at a time. Only the index of each maximum is kept, T x C integers per tile, from which the
backward pass computes both gradients.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from encoder_engine.errors import InputError
from encoder_engine.objectives.vectors.tiles import TILE_ELEMENTS, tiled_sum

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import numpy.typing as npt

    from encoder_engine.objectives.vectors.in_batch import Candidates

    Offsets = npt.NDArray[np.int64]

__all__ = ["late_interaction_negatives", "max_similarity", "paired_max_similarity"]


def max_similarity(
    queries_TD: Tensor, query_offsets: Offsets, documents_SD: Tensor, document_offsets: Offsets
) -> Tensor:
    """Return MaxSim of each query with each document, [B, C].

    It is the sum, over the query's tokens, of the greatest inner product with a token of the
    document.
    Raises :class:`InputError` for a document without a token.
    """
    empty = np.flatnonzero(np.diff(document_offsets) <= 0)
    if len(empty):
        raise InputError(f"document {empty[0]} has no token to compare; leave it out")
    best_TC: Tensor = _MaxSimilarity.apply(queries_TD, documents_SD, document_offsets)  # type: ignore[no-untyped-call]
    lengths = torch.from_numpy(np.diff(query_offsets)).to(queries_TD.device)
    owners_T = torch.repeat_interleave(torch.arange(len(lengths), device=lengths.device), lengths)
    return best_TC.new_zeros(len(lengths), best_TC.shape[1]).index_add(0, owners_T, best_TC)


def paired_max_similarity(
    queries_TD: Tensor,
    query_offsets: Offsets,
    documents_SD: Tensor,
    document_offsets: Offsets,
    owners_C: npt.NDArray[np.int64],
) -> Tensor:
    """Return MaxSim of each document with its own query, [C].

    ``owners_C``: the index of each document's query, ascending.
    """
    scores = []
    firsts = np.searchsorted(owners_C, np.arange(len(query_offsets)))
    for query in range(len(query_offsets) - 1):
        first, last = firsts[query], firsts[query + 1]
        if first == last:
            continue
        tokens = slice(query_offsets[query], query_offsets[query + 1])
        offsets = document_offsets[first : last + 1]
        own_SD = documents_SD[offsets[0] : offsets[-1]]
        own_TD = queries_TD[tokens]
        one = np.array([0, len(own_TD)], dtype=np.int64)
        scores.append(max_similarity(own_TD, one, own_SD, offsets - offsets[0])[0])
    return torch.cat(scores) if scores else documents_SD.new_zeros(0)


def late_interaction_negatives(
    queries_TD: Tensor,
    query_offsets: Offsets,
    documents_SD: Tensor,
    document_offsets: Offsets,
    candidates: Candidates,
    *,
    scale: float = 1.0,
    share: tuple[int, int] = (0, 1),
) -> Tensor:
    """Return the loss of in-batch negatives scored by MaxSim, summed over the B queries.

    The first B documents are the positives, in the order of the queries. ``candidates`` determines
    the documents to leave out of the denominator. ``share``: see :func:`in_batch_negatives`.
    """

    def tile_loss(tile: slice, rows: Sequence[Tensor], whole: Sequence[Tensor]) -> Tensor:
        first, last = np.searchsorted(query_offsets, [tile.start, tile.stop])
        offsets = query_offsets[first : last + 1] - tile.start
        scores = scale * max_similarity(rows[0], offsets, whole[0], document_offsets)
        places = torch.arange(first, last, device=scores.device)
        positives = scores.gather(1, places[:, None])[:, 0]
        left_out = candidates.left_out("query_to_document", slice(int(first), int(last)))
        return (scores.masked_fill(left_out, -torch.inf).logsumexp(1) - positives).sum()

    chunks = _chunks(query_offsets, len(document_offsets) - 1)
    tiles = [slice(int(query_offsets[i]), int(query_offsets[j])) for i, j in chunks]
    return tiled_sum(
        tile_loss, tiles[share[0] :: share[1]], by_row=(queries_TD,), whole=(documents_SD,)
    )


class _MaxSimilarity(torch.autograd.Function):
    """The greatest inner product of each query token with each document's tokens, [T, C]."""

    @staticmethod
    def forward(ctx: Any, queries_TD: Tensor, documents_SD: Tensor, offsets: Offsets) -> Tensor:
        values, places = [], []
        for first, last in _chunks(offsets, len(queries_TD)):
            start, stop = int(offsets[first]), int(offsets[last])
            similarities = queries_TD @ documents_SD[start:stop].T
            lengths = np.diff(offsets[first : last + 1])
            # [c, longest]: a short document repeats its last token, which changes no maximum.
            column = np.minimum(np.arange(lengths.max()), lengths[:, None] - 1)
            column += (offsets[first:last] - start)[:, None]
            columns = torch.from_numpy(column).to(queries_TD.device)
            found = similarities[:, columns].max(2)
            values.append(found.values)
            rows = torch.arange(len(columns), device=columns.device)
            places.append(columns[rows[None, :], found.indices] + start)
        ctx.save_for_backward(queries_TD, documents_SD, torch.cat(places, 1))
        ctx.offsets = offsets
        return torch.cat(values, 1)

    @staticmethod
    def backward(ctx: Any, *outputs: Tensor) -> tuple[Tensor, Tensor, None]:
        (gradient_TC,) = outputs
        queries_TD, documents_SD, places_TC = ctx.saved_tensors
        offsets = ctx.offsets
        queries, documents = torch.zeros_like(queries_TD), torch.zeros_like(documents_SD)
        for first, last in _chunks(offsets, len(queries_TD)):
            start, stop = int(offsets[first]), int(offsets[last])
            spread = queries_TD.new_zeros(len(queries_TD), stop - start)
            # A document's maximum lies among its own tokens: no two columns meet.
            spread.scatter_(1, places_TC[:, first:last] - start, gradient_TC[:, first:last])
            queries += spread @ documents_SD[start:stop]
            documents[start:stop] = spread.T @ queries_TD
        return queries, documents, None


def _chunks(offsets: Offsets, num_others: int) -> Iterator[tuple[int, int]]:
    """Yield ranges of texts whose tokens, times ``num_others``, number up to 2^22.

    A single text may have more.
    """
    most = max(1, TILE_ELEMENTS // max(num_others, 1))
    first, last = 0, len(offsets) - 1
    while first < last:
        beyond = int(np.searchsorted(offsets, offsets[first] + most, side="right")) - 1
        stop = min(max(beyond, first + 1), last)
        yield first, stop
        first = stop
