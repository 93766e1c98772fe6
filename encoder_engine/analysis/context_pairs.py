"""Decides if a word has the same sense in two contexts (WiC, Pilehvar & Camacho-Collados 2019).

The cosine of the word's two vectors decides, against a threshold that is chosen on other words.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from encoder_engine.analysis.senses import SenseWord
from encoder_engine.dataclass import dataclass
from encoder_engine.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import numpy.typing as npt

    from encoder_engine.analysis.zscore import ZScore
    from encoder_engine.inputs.records import Record

__all__ = ["ContextPair", "PairScores", "read_pairs", "score_pairs"]

# The least letters that an inflected form shares with its lemma, if it does not begin with it.
LEAST_SHARED = 3


class ContextPair(NamedTuple):
    """A word in two sentences, and whether it has the same sense in both."""

    first: SenseWord
    second: SenseWord
    same: bool


@dataclass(frozen=True, kw_only=True)
class PairScores:
    """Accuracy, in percent, of decisions whether two words have the same sense, by their cosine.

    Only the half of the words that ``threshold`` was not chosen on are scored.
    ``constant``: the accuracy, on the same words, of always giving the more frequent answer.
    """

    accuracy: float
    constant: float
    threshold: float
    num_pairs: int


def read_pairs(records: Sequence[Record]) -> tuple[list[ContextPair], int]:
    """Return pairs from records with ``word``, ``s1``, ``s2``, ``label``; and how many are skipped.

    The word in a sentence is the first that equals the lemma, else the one that shares most first
    letters with it; a pair without such a word (go, went) is left out. Raises :class:`RowError` for
    a label other than 1, the same sense, and 0.
    """
    pairs = []
    for record in records:
        label = record.number_of("label")
        if label not in (0, 1):
            record.refuse(f"label must be 1, the same sense, or 0, got {label:g}")
        lemma = record.text("word")
        first, second = (_find(lemma, record.text(name).split()) for name in ("s1", "s2"))
        if first is not None and second is not None:
            pairs.append(ContextPair(first, second, label == 1))
    return pairs, len(records) - len(pairs)


def _find(lemma: str, words: list[str]) -> SenseWord | None:
    wanted = lemma.casefold()
    shared = [_shared(wanted, word.casefold()) for word in words]
    best = max(range(len(words)), key=lambda place: shared[place], default=None)
    if best is None or shared[best] < min(LEAST_SHARED, len(wanted)):
        return None
    return SenseWord(words, best, lemma, ())


def _shared(lemma: str, word: str) -> float:
    """Return how many initial letters a word shares with a lemma; infinity if they are equal."""
    if lemma == word:
        return float("inf")
    equal = [a == b for a, b in zip(lemma, word, strict=False)]
    return float(equal.index(False) if False in equal else len(equal))


def score_pairs(
    vectors_of: Callable[[Sequence[SenseWord]], npt.NDArray[np.float64]],
    pairs: Sequence[ContextPair],
    zscore: ZScore | None = None,
    seed: int = 0,
) -> PairScores:
    """Choose a cosine threshold on the pairs of half of the words; score it on the other pairs.

    vectors_of: a function from words to vectors, [n, D], such as :func:`word_vectors`.
    zscore: standardise the vectors by it; None: not. seed: of drawing the half.

    Raises :class:`InputError` for pairs of fewer than two different words.
    """
    lemmas = sorted({pair.first.lemma for pair in pairs})
    if len(lemmas) < 2:
        raise InputError(f"{len(lemmas)} different words cannot be halved; give pairs of two words")
    drawn = np.random.default_rng(seed).permutation(len(lemmas))
    choosing = {lemmas[n] for n in drawn[: len(lemmas) // 2].tolist()}
    chooses = np.array([pair.first.lemma in choosing for pair in pairs])
    same = np.array([pair.same for pair in pairs])
    both = [pair.first for pair in pairs], [pair.second for pair in pairs]
    sides = [vectors_of(words) for words in both]
    if zscore is not None:
        sides = [zscore.apply(side) for side in sides]
    cosines = _cosines(*sides)
    threshold = _best_threshold(cosines[chooses], same[chooses])
    tested = same[~chooses]
    share = float(tested.mean())
    return PairScores(
        accuracy=100.0 * float(np.mean((cosines[~chooses] >= threshold) == tested)),
        constant=100.0 * max(share, 1.0 - share),
        threshold=threshold,
        num_pairs=len(tested),
    )


def _cosines(
    one: npt.NDArray[np.float64], other: npt.NDArray[np.float64]
) -> npt.NDArray[np.float64]:
    norms = np.linalg.norm(one, axis=1) * np.linalg.norm(other, axis=1)
    found: npt.NDArray[np.float64] = (one * other).sum(1) / np.where(norms > 0, norms, 1.0)
    return found


def _best_threshold(cosines: npt.NDArray[np.float64], same: npt.NDArray[np.bool_]) -> float:
    """Return the cosine from which on pairs are called "same" with the highest accuracy.

    Of equally good thresholds the lowest; infinity: no pair is called the same.
    """
    order = np.argsort(cosines, kind="stable")
    labels = same[order]
    # right[k]: right answers if the first k pairs are called different, and the others the same.
    right = np.r_[0, np.cumsum(~labels)] + np.r_[labels[::-1].cumsum()[::-1], 0]
    place = int(right.argmax())
    return float(cosines[order][place]) if place < len(order) else float("inf")
