"""Measures what attention heads attend to over a corpus, and names the kinds of heads.

Statistics and kinds follow Clark et al. (2019) and Voita et al. (2019).

How it works: every block summarises its attention weights in tiles, so that no matrix of weights is
stored; the means are over the queries (the tokens that attend) that are not special tokens.
"""

from __future__ import annotations

import unicodedata
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np
import torch

from encoder_engine.dataclass import dataclass

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy.typing as npt

    from encoder_engine.analysis.subject import Subject
    from encoder_engine.ops import AttentionStatistics
    from encoder_engine.packing import PackedBatch

    Counts = npt.NDArray[np.int64]

__all__ = ["HeadSummary", "kinds_of", "measure_heads"]

# Maxima at one offset, mass on special tokens, maxima on the rarest token, entropy as a share of
# that of even weights.
POSITIONAL, SPECIAL, RARE, BROAD = 90.0, 50.0, 50.0, 90.0
# The least lead over the best fixed offset of a syntactic head, in points.
SYNTACTIC = 10.0


@dataclass(frozen=True, kw_only=True)
class HeadSummary:
    """Means of an attention head over the queries of a corpus; shares in percent.

    ``maximum``: the greatest weight of a query. ``distance``: of the tokens attended to, in tokens.
    ``entropy`` in nats; ``evenness``: the entropy as a share of that of equal weights.
    ``offset``: the most frequent offset of the greatest weight from the query; ``offset_share``:
    the queries that have it. ``previous``, ``itself``, ``following``, ``first``, ``special``,
    ``punctuation``: the summed weights of these tokens.
    ``rare``: queries whose maximum is on the rarest token of their sequence.
    """

    layer: int
    head: int
    maximum: float
    entropy: float
    evenness: float
    distance: float
    offset: int
    offset_share: float
    previous: float
    itself: float
    following: float
    first: float
    special: float
    punctuation: float
    rare: float


def measure_heads(
    subject: Subject, sentences: Sequence[Sequence[str]], *, batch_tokens: int = 4096
) -> list[HeadSummary]:
    """Summarise every attention head over sentences; layers and heads count from 0."""
    batches = [b.batch for b in subject.word_batches(sentences, batch_tokens=batch_tokens)]
    vocabulary = subject.tokenizer.vocab_size
    frequencies = np.zeros(vocabulary, np.int64)
    for batch in batches:
        frequencies += np.bincount(batch.input_ids.cpu().numpy(), minlength=vocabulary)
    special, punctuation = _special(subject), _punctuation(subject)
    totals: list[npt.NDArray[np.float64]] = []
    offsets: list[dict[int, Counts]] = []
    for batch in batches:
        ids = batch.input_ids.cpu()
        starts = batch.sequences.positions.cpu() == 0
        marks_TC = torch.stack([starts, special[ids], punctuation[ids]], 1)
        queries = (~special[ids]).numpy()
        rarest = _rarest(batch, frequencies, special.numpy())
        for layer, found in enumerate(subject.encoder.attention_statistics(batch, marks_TC)):
            values = _values(found, batch, queries, rarest)
            if layer == len(totals):
                totals.append(np.zeros((values.shape[1], values.shape[2])))
                offsets.append({})
            totals[layer] += values.sum(0)
            _count_offsets(offsets[layer], found.offset_TH.cpu().numpy()[queries])
    return [
        _summary(layer, head, totals[layer][head], offsets[layer])
        for layer in range(len(totals))
        for head in range(len(totals[layer]))
    ]


def _special(subject: Subject) -> torch.Tensor:
    """Return which tokens of the vocabulary are special, bool [V]."""
    found = torch.zeros(subject.tokenizer.vocab_size, dtype=torch.bool)
    found[torch.from_numpy(np.asarray(subject.tokenizer.encode(""), np.int64))] = True
    return found


def _punctuation(subject: Subject) -> torch.Tensor:
    """Return which tokens are only punctuation, apart from a leading space, bool [V]."""
    tokenizer = subject.tokenizer
    texts = (
        "" if tokenizer.id_to_token(n) is None else tokenizer.decode([n], skip_special_tokens=False)
        for n in range(tokenizer.vocab_size)
    )
    kinds = ({unicodedata.category(c)[0] for c in text.strip()} for text in texts)
    return torch.tensor([found == {"P"} for found in kinds])


def _rarest(
    batch: PackedBatch, frequencies: Counts, special: npt.NDArray[np.bool_]
) -> npt.NDArray[np.bool_]:
    """Mark the tokens that are the rarest of their sequence, special ones aside, bool [T]."""
    ids = batch.input_ids.cpu().numpy()
    counts = np.where(special[ids], np.iinfo(np.int64).max, frequencies[ids])
    rarest: npt.NDArray[np.bool_] = np.zeros(len(ids), np.bool_)
    offsets = batch.sequences.offsets
    for start, stop in pairwise(offsets.tolist()):
        if stop > start:
            rarest[start:stop] = counts[start:stop] == counts[start:stop].min()
    rarest &= ~special[ids]
    return rarest


def _values(
    found: AttentionStatistics,
    batch: PackedBatch,
    queries: npt.NDArray[np.bool_],
    rarest: npt.NDArray[np.bool_],
) -> npt.NDArray[np.float64]:
    """Return twelve numbers of each query and attention head, float64 [n, H, 12].

    The first is 1, whose sum is the number of queries; the others are those that
    :class:`HeadSummary` averages.
    """
    rows = np.arange(len(queries))[:, None]
    offsets = found.offset_TH.cpu().numpy()
    lengths = np.repeat(batch.sequences.lengths, batch.sequences.lengths)
    entropy = found.entropy_TH.cpu().double().numpy()
    even = entropy / np.log(np.maximum(lengths, 2))[:, None]
    columns = [
        np.ones(entropy.shape),
        found.maximum_TH.cpu().numpy(),
        entropy,
        even,
        found.distance_TH.cpu().numpy(),
        *np.moveaxis(found.near_THO.cpu().numpy(), 2, 0),
        *np.moveaxis(found.marked_THC.cpu().numpy(), 2, 0),
        rarest[rows + offsets].astype(np.float64),
    ]
    return np.stack(columns, 2)[queries]


def _count_offsets(counts: dict[int, Counts], offsets_TH: Counts) -> None:
    num_heads = offsets_TH.shape[1]
    for head in range(num_heads):
        values, numbers = np.unique(offsets_TH[:, head], return_counts=True)
        for value, number in zip(values.tolist(), numbers.tolist(), strict=True):
            counts.setdefault(value, np.zeros(num_heads, np.int64))[head] += number


def _summary(
    layer: int, head: int, total: npt.NDArray[np.float64], offsets: dict[int, Counts]
) -> HeadSummary:
    number = max(total[0], 1.0)
    means = (total[1:] / number).tolist()
    best = max(offsets, key=lambda value: int(offsets[value][head]))
    shares = [100.0 * value for value in means[4:]]
    return HeadSummary(
        layer=layer,
        head=head,
        maximum=means[0],
        entropy=means[1],
        evenness=100.0 * means[2],
        distance=means[3],
        offset=best,
        offset_share=100.0 * float(offsets[best][head]) / number,
        previous=shares[0],
        itself=shares[1],
        following=shares[2],
        first=shares[3],
        special=shares[4],
        punctuation=shares[5],
        rare=shares[6],
    )


def kinds_of(summary: HeadSummary, points: float | None = None) -> tuple[str, ...]:
    """Return an attention head's kinds: positional, special, rare, broad, syntactic, or none.

    ``points``: its lead by :func:`points_over_offset`; None: not measured.
    """
    found = {
        "positional": summary.offset_share >= POSITIONAL,
        "special": summary.special >= SPECIAL,
        "rare": summary.rare >= RARE,
        "broad": summary.evenness >= BROAD,
        "syntactic": points is not None and points >= SYNTACTIC,
    }
    return tuple(kind for kind, holds in found.items() if holds)
