"""Rows of texts to embed: pairs, triplets, scored pairs, and lists of scored documents.

A row is a query with any number of documents. The positives come first, then hard negatives. A
scored pair is a query with one document and one score.
"""

from __future__ import annotations

import math
from dataclasses import field
from hashlib import blake2b
from typing import TYPE_CHECKING

import numpy as np

from encoder_engine.dataclass import dataclass
from encoder_engine.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import numpy.typing as npt

    from encoder_engine.inputs.records import Record

__all__ = [
    "COUNTED",
    "NUM_NEGATIVES",
    "NUM_POSITIVES",
    "NUM_VECTORS",
    "UNATTENDED",
    "RetrievalColumns",
    "RetrievalExample",
    "are_scored_lists",
    "are_scored_pairs",
    "check_loss",
    "is_scored_pair",
    "query_groups",
    "read_example",
    "text_ids",
]

# Targets with the number of an item's documents, int64 [I].
NUM_POSITIVES, NUM_NEGATIVES = "num_positives", "num_negatives"
# Of late interaction: uint8 [T], whether a token's vector counts; int64 [S], the vectors of each
# text; and the last tokens of each that no token attends to.
COUNTED, NUM_VECTORS, UNATTENDED = "counted", "num_vectors", "unattended"


@dataclass(frozen=True, slots=True)
class RetrievalExample:
    """A query, its positive (relevant) documents, and its negative ones.

    ``scores``: one for each document, positives first; empty: the row has none.
    ``vector``: a teacher's vector of the query; empty: the row has none.
    """

    query: str
    positives: tuple[str, ...] = ()
    negatives: tuple[str, ...] = ()
    scores: tuple[float, ...] = ()
    vector: tuple[float, ...] = field(default=(), repr=False)

    @property
    def documents(self) -> tuple[str, ...]:
        """The positive documents, then the negative ones."""
        return self.positives + self.negatives


@dataclass(frozen=True, kw_only=True)
class RetrievalColumns:
    """The names of the columns of a file of queries and documents; only ``query`` must be there.

    ``documents``: a text, or a list of texts.
    ``negatives``: a text, or a list; columns with this name and ``_1``, ``_2``, ... are read as
    well.
    ``scores``: a number, or a list with one number for each document.
    ``vector``: a list of numbers, a teacher's vector of the query.
    """

    query: str
    documents: str
    negatives: str
    scores: str
    vector: str = "vector"


def read_example(record: Record, columns: RetrievalColumns) -> RetrievalExample:
    """Make an example from a row. Raises :class:`RowError` for values that cannot be used."""
    query = record.text(columns.query)
    positives = _texts(record, columns.documents)
    negatives = _texts(record, columns.negatives)
    place = 1
    while record.has(f"{columns.negatives}_{place}"):
        negatives += _texts(record, f"{columns.negatives}_{place}")
        place += 1
    if negatives and not positives:
        record.refuse(
            f"{columns.negatives} has {len(negatives)} documents but {columns.documents} has none; "
            "name the document that belongs to the query"
        )
    scores = _numbers(record, columns.scores)
    if scores and len(scores) != len(positives) + len(negatives):
        record.refuse(
            f"{columns.scores} has {len(scores)} numbers for {len(positives) + len(negatives)} "
            "documents; give one for each, positives first"
        )
    return RetrievalExample(query, positives, negatives, scores, _numbers(record, columns.vector))


def _texts(record: Record, column: str) -> tuple[str, ...]:
    if not record.has(column):
        return ()
    if isinstance(record.get(column), str):
        return (record.text(column),)
    return tuple(record.names_of(column))


def _numbers(record: Record, column: str) -> tuple[float, ...]:
    """Return the numbers in a row's column, which holds one number or a list."""
    if not record.has(column):
        return ()
    value = record.get(column)
    if isinstance(value, str) or not hasattr(value, "__len__"):
        return (record.number_of(column),)
    numbers = []
    for place, number in enumerate(value):
        if isinstance(number, bool) or not isinstance(number, (int, float, np.number)):
            record.refuse(f"{column}[{place}] must be a number, got {number!r:.60}")
        try:
            found = float(number)
        except OverflowError:
            found = math.inf
        if not math.isfinite(found):
            record.refuse(f"{column}[{place}] must be finite, got {number!r:.60}")
        numbers.append(found)
    return tuple(numbers)


def is_scored_pair(example: RetrievalExample) -> bool:
    """Return whether an example has exactly one document, with one score."""
    return len(example.documents) == 1 == len(example.scores)


def are_scored_pairs(examples: Sequence[RetrievalExample]) -> bool:
    """Return whether every example has exactly one document, with one score."""
    return all(is_scored_pair(example) for example in examples)


def query_groups(examples: Sequence[RetrievalExample]) -> npt.NDArray[np.int64]:
    """Return the group of each row, int64 [N]; the bootstrap draws whole groups.

    The rows of a query are one group; if all rows are scored pairs, each row is a group.
    """
    if are_scored_pairs(examples):
        return np.arange(len(examples))
    places: dict[str, int] = {}
    return np.array([places.setdefault(e.query, len(places)) for e in examples], np.int64)


def text_ids(texts: Sequence[str]) -> npt.NDArray[np.int64]:
    """Return a 64-bit hash (BLAKE2b) of each text, int64 [N]: equal for equal texts."""
    digests = b"".join(blake2b(text.encode(), digest_size=8).digest() for text in texts)
    return np.frombuffer(digests, np.int64)


def are_scored_lists(examples: Sequence[RetrievalExample]) -> bool:
    """Return whether each example has several documents, each with a score."""
    return all(len(e.documents) > 1 and len(e.scores) == len(e.documents) for e in examples)


def check_loss(loss: str, examples: Sequence[RetrievalExample]) -> None:
    """Raise :class:`InputError` for the first example that lacks what a loss needs."""
    pair = {"document": lambda e: len(e.positives) > 0}
    negative = {"negative": lambda e: len(e.negatives) > 0}
    scored = {"score of each document": lambda e: len(e.scores) == len(e.documents)}
    single = {"single positive": lambda e: len(e.positives) == 1}
    needs: dict[str, dict[str, Callable[[RetrievalExample], bool]]] = {
        "in_batch": pair,
        "cosent": {"one document with one score": is_scored_pair},
        "cosine": {"one document with one score": is_scored_pair},
        "triplet": pair | negative,
        "margin": pair | scored | negative | single,
        "divergence": scored | {"second document": lambda e: len(e.documents) > 1},
        "vectors": {
            "teacher's vector as long as the first row's": lambda e: (
                len(e.vector) == len(examples[0].vector) > 0
            )
        },
    }
    for place, example in enumerate(examples):
        for wanted, holds in needs[loss].items():
            if not holds(example):
                raise InputError(f"training row {place} has no {wanted}: {example!r:.120}")
