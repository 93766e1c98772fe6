"""Predicts the senses of words by the nearest sense vector, and scores the predictions.

How it works (Peters et al. 2018; Loureiro & Jorge 2019): the vector of a word in context is the
mean of its subwords, of the last four layers summed. The vector of a sense is the mean of its
training words. A word gets the sense of its lemma and part of speech whose vector has the greatest
cosine. A lemma without a training word cannot be decided: it is counted, and not scored.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from encoder_engine.dataclass import dataclass
from encoder_engine.errors import InputError
from encoder_engine.vectors.similarity import unit_vectors

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy.typing as npt

    from encoder_engine.analysis.subject import Subject
    from encoder_engine.analysis.zscore import ZScore
    from encoder_engine.inputs.records import Record

    Vectors = npt.NDArray[np.float64]

__all__ = [
    "LAST_LAYERS",
    "SenseScores",
    "SenseWord",
    "draw_halves",
    "read_words",
    "score_senses",
    "word_vectors",
]

LAST_LAYERS = 4


class SenseWord(NamedTuple):
    """A word, at ``place`` in a sentence's words, and its gold senses, any of which is right."""

    words: Sequence[str]
    place: int
    lemma: str
    senses: Sequence[str]


@dataclass(frozen=True, kw_only=True)
class SenseScores:
    """The accuracy of predicted word senses, in percent of the ``num_covered`` test words.

    Covered words are those whose lemma has a training word. ``num_senses``: the senses of their
    lemmas.
    ``nearest``: by the nearest sense vector.
    ``neighbour``: by the nearest training word.
    ``most_frequent``: by the lemma's most frequent sense in training.
    ``num_words``: all test words; those that are not covered are not scored.
    """

    nearest: float
    neighbour: float
    most_frequent: float
    num_words: int
    num_covered: int
    num_senses: int


def read_words(records: Sequence[Record]) -> list[SenseWord]:
    """Return the words in records of :func:`read_senses`; a lemma has its part of speech added."""
    values = [record.values for record in records]
    return [
        SenseWord(v["words"], v["place"], f"{v['lemma']} {v['pos']}".strip(), v["senses"])
        for v in values
    ]


def draw_halves(
    words: Sequence[SenseWord], num_rows: int, seed: int
) -> tuple[list[SenseWord], list[SenseWord]]:
    """Draw words without replacement; return one half for training and one for testing."""
    drawn = np.random.default_rng(seed).permutation(len(words))[:num_rows].tolist()
    half = len(drawn) // 2
    if not half:
        raise InputError(f"{len(words)} words cannot be halved; give at least two")
    return [words[n] for n in drawn[:half]], [words[n] for n in drawn[half:]]


def word_vectors(
    subject: Subject, words: Sequence[SenseWord], layers: Sequence[int] | None = None
) -> Vectors:
    """Return the vector of each word in its sentence, float64 [n, D]: the sum of ``layers``.

    layers: layers from 0, the embeddings; None: the last four.

    Raises :class:`InputError` for no word, and for a word without a token.
    """
    if not words:
        raise InputError("there is no word; name a file with instances of words")
    last = subject.num_layers
    chosen = range(max(0, last - LAST_LAYERS + 1), last + 1) if layers is None else layers
    places = np.array([word.place for word in words], np.int64)
    found: list[Vectors] = []
    numbers: list[npt.NDArray[np.int64]] = []
    for batch in subject.word_states([word.words for word in words]):
        requested = places[batch.sentences] == batch.words
        numbers.append(batch.sentences[requested])
        found.append(batch.states[list(chosen)][:, requested].astype(np.float64).sum(0))
    order = np.concatenate(numbers) if numbers else np.zeros(0, np.int64)
    missing = np.setdiff1d(np.arange(len(words)), order)
    if len(missing):
        row = int(missing[0])
        raise InputError(f"word {row}, {words[row].words[words[row].place]!r}, has no token")
    vectors = np.concatenate(found)
    return vectors[np.argsort(order)]


def score_senses(
    train: Sequence[SenseWord],
    test: Sequence[SenseWord],
    train_vectors: Vectors,
    test_vectors: Vectors,
    zscore: ZScore | None = None,
) -> SenseScores:
    """Predict the senses of test words by training words, and score the predictions.

    ``zscore``: standardise all vectors by it before they are compared; None: not. Raises
    :class:`InputError` if no test word has a lemma of a training word.
    """
    if zscore is not None:
        train_vectors, test_vectors = zscore.apply(train_vectors), zscore.apply(test_vectors)
    train_vectors, test_vectors = unit_vectors(train_vectors), unit_vectors(test_vectors)
    by_lemma: dict[str, list[int]] = {}
    for number, word in enumerate(train):
        by_lemma.setdefault(word.lemma, []).append(number)
    right: list[tuple[bool, bool, bool]] = []
    senses: set[str] = set()
    for word, vector in zip(test, test_vectors, strict=True):
        rows = by_lemma.get(word.lemma)
        if rows is None:
            continue
        names, centres = _sense_vectors([train[row] for row in rows], train_vectors[rows])
        senses.update(names)
        neighbour = train[rows[int((train_vectors[rows] @ vector).argmax())]]
        frequent = Counter(sense for row in rows for sense in train[row].senses)
        right.append(
            (
                names[int((centres @ vector).argmax())] in word.senses,
                not set(neighbour.senses).isdisjoint(word.senses),
                frequent.most_common(1)[0][0] in word.senses,
            )
        )
    if not right:
        raise InputError("no test word has a lemma that is in training")
    nearest, neighbour_share, most_frequent = (100.0 * np.mean(right, axis=0)).tolist()
    return SenseScores(
        nearest=nearest,
        neighbour=neighbour_share,
        most_frequent=most_frequent,
        num_words=len(test),
        num_covered=len(right),
        num_senses=len(senses),
    )


def _sense_vectors(words: Sequence[SenseWord], vectors: Vectors) -> tuple[list[str], Vectors]:
    members: dict[str, list[int]] = {}
    for number, word in enumerate(words):
        for sense in word.senses:
            members.setdefault(sense, []).append(number)
    return list(members), unit_vectors(
        np.stack([vectors[rows].mean(0) for rows in members.values()])
    )
