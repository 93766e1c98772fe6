"""The accent of a multilingual model: its preference for sentences of English structure.

A row holds a sentence in a language's own construction and one of English-like structure with the
same meaning, such as a Spanish sentence without and with its subject pronoun. The preference is the
pseudo-log-likelihood of the first minus that of the second. The accent is the preference of a
multilingual model minus that of a monolingual one: below 0, the multilingual model leans to English
(Papadimitriou et al. 2023, Multilingual BERT has an accent).
"""

from __future__ import annotations

from functools import partial
from itertools import chain
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from encoder_engine.dataclass import dataclass
from encoder_engine.errors import InputError, RowError
from encoder_engine.inputs.tables import read_table
from encoder_engine.metrics.intervals import bootstrap, paired_randomisation

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy.typing as npt

    from encoder_engine.metrics.intervals import Interval
    from encoder_engine.prediction.mask_filler import MaskFiller

    Values = npt.NDArray[np.float64]

__all__ = [
    "Accent",
    "ConstructionPair",
    "Preference",
    "compare_preferences",
    "measure_preferences",
    "read_constructions",
    "summarise_preferences",
]

# Pairs whose copies are in memory together.
WINDOW_PAIRS = 128


class ConstructionPair(NamedTuple):
    """A sentence in a language's own construction, and one of English-like structure."""

    own: str
    english_like: str


@dataclass(frozen=True, kw_only=True)
class Preference:
    """The preference of a model over the pairs; intervals are 95% bootstraps over pairs.

    ``difference``: the mean pseudo-log-likelihood of the own minus the English-like sentence, nats.
    ``per_token``: the same difference of mean log probabilities per token, which do not depend on
    length.
    ``own_share``: percent of the pairs whose own sentence is more likely; equal ones count half.
    """

    difference: Interval
    per_token: Interval
    own_share: Interval


@dataclass(frozen=True, kw_only=True)
class Accent:
    """The preference of a multilingual model minus that of a monolingual one, over the same pairs.

    ``p_value``: the p-value, by paired randomisation, of the hypothesis that both mean preferences
    are equal.
    """

    difference: Interval
    per_token: Interval
    p_value: float


def read_constructions(
    files: Sequence[str], *, own: str = "own", english_like: str = "english_like"
) -> list[ConstructionPair]:
    """Read pairs from two columns of .jsonl, .tsv, .csv and other tables.

    Raises :class:`RowError` for a row whose sentences are equal or blank, and :class:`InputError`
    where there is no row.
    """
    pairs = []
    keywords = {own: "own=", english_like: "english_like="}
    for record in chain.from_iterable(map(partial(read_table, keywords=keywords), files)):
        pair = ConstructionPair(record.text(own), record.text(english_like))
        for column, text in zip((own, english_like), pair, strict=True):
            if not text.strip():
                record.refuse(f"{column} is blank; drop the row or fill it in")
        if pair.own == pair.english_like:
            record.refuse(f"{own} and {english_like} are equal: neither can be preferred")
        pairs.append(pair)
    if not pairs:
        raise InputError(f"{', '.join(files)} has no row; give pairs of sentences")
    return pairs


def measure_preferences(
    filler: MaskFiller, pairs: Sequence[ConstructionPair], *, within_words: bool = True
) -> Values:
    """Return the log-likelihood of each own sentence minus its English-like one, float64 [n, 2].

    The first column holds differences of sums over tokens, the second of their means. See
    :meth:`MaskFiller.score`. Raises :class:`InputError` for a sentence without a token, or of more
    tokens than the model supports.
    """
    found: list[tuple[float, float]] = []
    for start in range(0, len(pairs), WINDOW_PAIRS):
        window = pairs[start : start + WINDOW_PAIRS]
        texts = [text for pair in window for text in pair]
        try:
            scores = filler.score(texts, within_words=within_words)
        except RowError as error:
            row = start + (error.row or 0) // 2
            raise InputError(f"pair {row}: {error.reason}", row=row) from error
        for number, (own, english) in enumerate(zip(scores[::2], scores[1::2], strict=True)):
            if not len(own.tokens) or not len(english.tokens):
                row = start + number
                raise InputError(f"pair {row} has a sentence without a token; drop it", row=row)
            sums = own.log_likelihood, english.log_likelihood
            means = sums[0] / len(own.tokens), sums[1] / len(english.tokens)
            found.append((sums[0] - sums[1], means[0] - means[1]))
    return np.array(found, np.float64).reshape(-1, 2)


def summarise_preferences(differences: Values, *, samples: int = 1000, seed: int = 0) -> Preference:
    """Return a model's mean preference, given what :func:`measure_preferences` returned for it.

    samples, seed: of the bootstrap for the intervals.
    """
    preferred = 50.0 * (1.0 + np.sign(differences[:, 0]))
    whole, each, share = (
        _interval(values, samples, seed) for values in (*differences.T, preferred)
    )
    return Preference(difference=whole, per_token=each, own_share=share)


def compare_preferences(
    multilingual: Values, monolingual: Values, *, samples: int = 1000, seed: int = 0
) -> Accent:
    """Return the accent, given what :func:`measure_preferences` returned for two models.

    Raises :class:`InputError` unless both are of equally many pairs.
    """
    if multilingual.shape != monolingual.shape:
        raise InputError(
            f"{len(multilingual)} and {len(monolingual)} pairs were measured; give the same pairs"
        )
    whole, each = (_interval(values, samples, seed) for values in (multilingual - monolingual).T)
    p_value = paired_randomisation(multilingual[:, 0], monolingual[:, 0], seed=seed)
    return Accent(difference=whole, per_token=each, p_value=p_value)


def _interval(values: Values, samples: int, seed: int) -> Interval:
    return bootstrap(
        lambda rows: float(values[rows].mean()), len(values), samples=samples, seed=seed
    )
