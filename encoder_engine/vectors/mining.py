"""Mines hard negatives for training: documents near a query that are not its answers.

How it works: an exact search over the store ranks the documents of each query. Known positives and
documents whose text equals a positive's or the query's are left out; so are documents that score
above the worst positive minus a margin, because they may be unlabelled answers (Moreira et al.
2024: 95 % of the positive's score). Documents are counted by the reason why they are left out,
until the query has all its negatives.

Dimensions: Q queries, D features.
"""

from __future__ import annotations

from dataclasses import field
from typing import TYPE_CHECKING

import numpy as np

from encoder_engine.dataclass import dataclass
from encoder_engine.errors import InputError
from encoder_engine.vectors.search import QUERIES, search_vectors

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence

    import numpy.typing as npt

    from encoder_engine.vectors.hits import Hit
    from encoder_engine.vectors.stored_vectors import StoredVectors

__all__ = ["MinedNegatives", "MiningOptions", "mine_negatives"]


@dataclass(frozen=True, kw_only=True)
class MiningOptions:
    """The rules for the documents that may be negatives.

    num_negatives: the number of negatives of each query.
    rank_range: the first and the last rank that is considered, from 1; positives have no rank.
    relative_margin: a negative scores at most ``(1 - margin) * score`` of the worst positive (of a
        negative score, ``(1 + margin) * score``); None: no limit.
    absolute_margin: a negative scores at least this much less than the worst positive; None: no
        limit.
    """

    num_negatives: int = 3
    rank_range: tuple[int, int] = (1, 100)
    relative_margin: float | None = 0.05
    absolute_margin: float | None = None

    def __post_init__(self) -> None:
        first, last = self.rank_range
        if not 1 <= first <= last:
            raise InputError(f"rank_range must be two ranks from 1, got {self.rank_range!r}")
        if self.num_negatives < 1:
            raise InputError(f"num_negatives must be at least 1, got {self.num_negatives!r}")
        if self.relative_margin is not None and not 0 <= self.relative_margin < 1:
            raise InputError(
                f"relative_margin must lie in 0..1, below 1, got {self.relative_margin!r}"
            )
        if self.absolute_margin is not None and not self.absolute_margin >= 0:
            raise InputError(f"absolute_margin must be at least 0, got {self.absolute_margin!r}")


@dataclass(kw_only=True)
class MinedNegatives:
    """The negatives of each query, and the numbers of documents that were left out.

    rows: for each query, the store's rows of its negatives, the nearest first.
    scores: the dot products of these rows with the query.
    num_positives: documents left out as known positives.
    num_equal_texts: documents left out because their text equals a positive's or the query's.
    num_too_near: documents left out by the margins.
    num_short: queries with fewer negatives than were requested.
    """

    rows: list[list[int]] = field(default_factory=list)
    scores: list[list[float]] = field(default_factory=list)
    num_positives: int = 0
    num_equal_texts: int = 0
    num_too_near: int = 0
    num_short: int = 0


def mine_negatives(
    store: StoredVectors,
    queries_QD: npt.NDArray[np.float32],
    positives: Sequence[Collection[int]],
    options: MiningOptions | None = None,
    *,
    query_texts: Sequence[str] | None = None,
    texts_of: Callable[[Collection[int]], Mapping[int, str]] | None = None,
) -> MinedNegatives:
    """Mine negatives for each query from a store of document vectors.

    queries_QD: float32 vectors of the model that embedded the store.
    positives: the store's rows of each query's known positives, at least one.
    query_texts: the text of each query; a document of the same text is not a negative.
    texts_of: a function from rows to their texts, such as :func:`read_texts`; None: texts are not
        compared.

    Raises :class:`InputError` for a query without a positive, for rows that the store lacks, and
    for arguments that differ in length.
    """
    options = options or MiningOptions()
    _check(store, queries_QD, positives, query_texts)
    first, last = options.rank_range
    # Positives take ranks that do not count.
    most = max((len(rows) for rows in positives), default=0)
    mined = MinedNegatives()
    for start in range(0, len(queries_QD), QUERIES):
        part = slice(start, start + QUERIES)
        hits = search_vectors(store, queries_QD[part], min(last + most, store.rows))
        worst = _worst_positives(store, queries_QD[part], positives[part])
        texts: Mapping[int, str] = {}
        if texts_of is not None:
            wanted = {hit.row for ranked in hits for hit in ranked}
            texts = texts_of(wanted.union(*positives[part]))
        for number, ranked in enumerate(hits):
            query = start + number
            own = None if query_texts is None else query_texts[query]
            _mine_one(
                mined,
                ranked,
                frozenset(positives[query]),
                float(worst[number]),
                options,
                texts=texts,
                query_text=own,
                ranks=(first, last),
            )
    return mined


def _check(
    store: StoredVectors,
    queries_QD: npt.NDArray[np.float32],
    positives: Sequence[Collection[int]],
    query_texts: Sequence[str] | None,
) -> None:
    if len(positives) != len(queries_QD):
        raise InputError(f"there are {len(queries_QD)} queries and positives of {len(positives)}")
    if query_texts is not None and len(query_texts) != len(queries_QD):
        raise InputError(f"there are {len(queries_QD)} queries and {len(query_texts)} texts")
    for query, rows in enumerate(positives):
        if not rows:
            raise InputError(f"query {query} has no positive; leave it out", row=query)
        outside = [row for row in rows if not 0 <= row < store.rows]
        if outside:
            raise InputError(
                f"query {query} names row {outside[0]} as a positive, {store.path} has "
                f"{store.rows} rows",
                row=query,
            )


def _worst_positives(
    store: StoredVectors, queries_QD: npt.NDArray[np.float32], positives: Sequence[Collection[int]]
) -> npt.NDArray[np.float32]:
    """Return the lowest score of each query's positives, float32 [Q]."""
    rows = np.array(sorted(set().union(*positives)), dtype=np.int64)
    vectors = store.take(rows)
    found = np.empty(len(queries_QD), dtype=np.float32)
    for query, own in enumerate(positives):
        places = np.searchsorted(rows, sorted(own))
        found[query] = (vectors[places] @ queries_QD[query]).min()
    return found


def _mine_one(
    mined: MinedNegatives,
    ranked: Sequence[Hit],
    positives: frozenset[int],
    worst: float,
    options: MiningOptions,
    *,
    texts: Mapping[int, str],
    query_text: str | None,
    ranks: tuple[int, int],
) -> None:
    """Add the negatives of one query to ``mined``, and the counts of documents left out."""
    known = {texts[row] for row in positives if row in texts}
    if query_text is not None:
        known.add(query_text)
    limit = _limit(worst, options)
    rows: list[int] = []
    scores: list[float] = []
    rank = 0
    for hit in ranked:
        if len(rows) == options.num_negatives:
            break
        if hit.row in positives:
            mined.num_positives += 1
            continue
        rank += 1
        if rank < ranks[0]:
            continue
        if rank > ranks[1]:
            break
        if texts.get(hit.row) in known and hit.row in texts:
            mined.num_equal_texts += 1
        elif hit.score > limit:
            mined.num_too_near += 1
        else:
            rows.append(hit.row)
            scores.append(hit.score)
    mined.num_short += len(rows) < options.num_negatives
    mined.rows.append(rows)
    mined.scores.append(scores)


def _limit(worst: float, options: MiningOptions) -> float:
    """Return the highest score that a negative may have."""
    limit = float("inf")
    if options.relative_margin is not None:
        # abs(), because a score below a negative one has a greater magnitude.
        limit = worst - options.relative_margin * abs(worst)
    if options.absolute_margin is not None:
        limit = min(limit, worst - options.absolute_margin)
    return limit
