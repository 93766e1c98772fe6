"""Scores retrieval by an embedder: of translations, and of documents labelled for queries."""

from __future__ import annotations

from functools import partial
from itertools import chain
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from encoder_engine.dataclass import dataclass
from encoder_engine.errors import InputError
from encoder_engine.inputs.tables import read_table
from encoder_engine.metrics.intervals import bootstrap
from encoder_engine.metrics.ranking import RankingScores, rank_by_score, ranking_scores
from encoder_engine.vectors.similarity import unit_vectors

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import numpy.typing as npt

    from encoder_engine.metrics.intervals import Interval

    Floats = npt.NDArray[np.float32]
    Encode = Callable[[list[str]], npt.NDArray[np.floating]]

__all__ = [
    "Candidates",
    "TranslationScores",
    "margin_scores",
    "read_candidates",
    "read_translations",
    "score_candidates",
    "score_translations",
]

# Neighbours of the margin (Artetxe & Schwenk 2019).
NEIGHBOURS = 4
# Rows whose similarities with all others are in memory at once.
BLOCK = 1024


@dataclass(frozen=True, kw_only=True)
class TranslationScores:
    """Percent of the texts whose nearest text in the other language is their translation (P@1).

    ``forward``: from the first column to the second; ``backward``: the other way; by the cosine,
    and by the ratio margin. Intervals are 95% bootstraps over pairs.
    """

    num_pairs: int
    forward: Interval
    backward: Interval
    margin_forward: Interval
    margin_backward: Interval


class Candidates(NamedTuple):
    """A query and its documents, each with its relevance, a number of at least 0."""

    query: str
    documents: list[str]
    relevance: list[float]


def read_translations(
    files: Sequence[str],
    translations: tuple[str, str],
    *,
    group: str | None = None,
    header: Sequence[str] = (),
    most: int | None = None,
) -> dict[str, list[tuple[str, str]]]:
    """Return pairs of translations, grouped by the column ``group``; without it, under ``""``.

    translations: the columns of the two texts.
    header: the columns of files without a header; quotation marks are then plain characters.
    most: the number of pairs to keep of each group, from the first; None: all.
    """
    found: dict[str, list[tuple[str, str]]] = {}
    keywords = dict.fromkeys(translations, "translations=") | {group or "": "group="}
    read = partial(read_table, header=header, quoting=not header, keywords=keywords)
    for record in chain.from_iterable(map(read, files)):
        pairs = found.setdefault("" if group is None else record.name_of(group), [])
        if most is None or len(pairs) < most:
            pairs.append((record.text(translations[0]), record.text(translations[1])))
    if not found:
        raise InputError(f"{', '.join(files)} has no row; give pairs of translations")
    return found


def score_translations(
    encode: Encode, pairs: Sequence[tuple[str, str]], *, samples: int = 1000
) -> TranslationScores:
    """Search each text's translation among all texts of the other language.

    encode: a function from texts to vectors, [n, D]. A nearest text that equals the translation
    counts as right, even in another row.
    """
    sides = [_unit(encode([pair[side] for pair in pairs])) for side in (0, 1)]
    texts = [[pair[side] for pair in pairs] for side in (0, 1)]
    right = []
    for margin in (False, True):
        found = _nearest(sides[0], sides[1], margin), _nearest(sides[1], sides[0], margin)
        for rows, others in zip(found, (texts[1], texts[0]), strict=True):
            right.append(
                np.array([others[n] == others[row] for row, n in enumerate(rows.tolist())])
            )
    forward, backward, margin_forward, margin_backward = (
        bootstrap(partial(_percent, found), len(found), samples=samples) for found in right
    )
    return TranslationScores(
        num_pairs=len(pairs),
        forward=forward,
        backward=backward,
        margin_forward=margin_forward,
        margin_backward=margin_backward,
    )


def _percent(right: npt.NDArray[np.bool_], rows: npt.NDArray[np.int64]) -> float:
    return 100.0 * float(right[rows].mean())


def margin_scores(cosines: Floats, queries: Floats, documents: Floats) -> Floats:
    """Return the ratio margin of queries and documents, [q, n], by their cosines [q, n].

    It is the cosine divided by the mean of ``queries`` [q] and ``documents`` [n]: the mean cosines
    of each text with its nearest texts of the other side. Texts unlike all others may have a mean
    that is not positive; the least positive number replaces it.
    """
    least = np.finfo(np.float32).tiny
    means = np.maximum((queries[:, None] + documents) / 2, least)
    return np.asarray(cosines / means, np.float32)


def _nearest(from_: Floats, to: Floats, margin: bool) -> npt.NDArray[np.int64]:
    means = (_neighbour_means(from_, to), _neighbour_means(to, from_)) if margin else None
    found = []
    for start in range(0, len(from_), BLOCK):
        scores = from_[start : start + BLOCK] @ to.T
        if means is not None:
            scores = margin_scores(scores, means[0][start : start + BLOCK], means[1])
        found.append(scores.argmax(1))
    return np.concatenate(found)


def _neighbour_means(from_: Floats, to: Floats) -> Floats:
    most = min(NEIGHBOURS, len(to))
    found = [
        np.partition(from_[start : start + BLOCK] @ to.T, -most, axis=1)[:, -most:].mean(1)
        for start in range(0, len(from_), BLOCK)
    ]
    return np.concatenate(found)


def read_candidates(
    files: Sequence[str], *, query: str, document: str, label: str
) -> list[Candidates]:
    """Read rows of a query, a document and its relevance; the rows of a query are one ranking.

    ``query``, ``document``, ``label``: the names of the columns.
    """
    found: dict[str, Candidates] = {}
    keywords = {query: "query=", document: "document=", label: "label="}
    for record in chain.from_iterable(map(partial(read_table, keywords=keywords), files)):
        text = record.text(query)
        one = found.setdefault(text, Candidates(text, [], []))
        one.documents.append(record.text(document))
        relevance = record.number_of(label)
        if relevance < 0:
            record.refuse(f"{label} must be a relevance of at least 0, got {relevance:g}")
        one.relevance.append(relevance)
    if not found:
        raise InputError(f"{', '.join(files)} has no row; give queries with documents")
    return list(found.values())


def score_candidates(
    encode_queries: Encode, encode_documents: Encode, queries: Sequence[Candidates]
) -> tuple[RankingScores, RankingScores]:
    """Rank each query's documents by their cosine with it; see :func:`ranking_scores`.

    Returns the scores of all queries, and those of the queries that also have an irrelevant
    document: rankings of relevant documents alone cannot be wrong. Raises :class:`InputError` where
    no query has both.
    """
    query_vectors = _unit(encode_queries([one.query for one in queries]))
    vectors = _unit(encode_documents([text for one in queries for text in one.documents]))
    ends = np.cumsum([0, *(len(one.documents) for one in queries)]).tolist()
    ranked = [
        rank_by_score(one.relevance, vectors[start:stop] @ vector)
        for one, vector, start, stop in zip(
            queries, query_vectors, ends[:-1], ends[1:], strict=True
        )
    ]
    return ranking_scores(ranked), ranking_scores(
        gains if (gains == 0).any() else np.zeros_like(gains) for gains in ranked
    )


def _unit(vectors: npt.NDArray[np.floating]) -> Floats:
    return unit_vectors(np.asarray(vectors, np.float32))
