"""Masking: chooses the tokens to predict, and replaces them in the input.

Dimensions: T tokens, B sequences, M tokens to predict, S spans.
"""

from __future__ import annotations

import math
from functools import cached_property
from typing import TYPE_CHECKING, Literal, get_args

import numpy as np

from encoder_engine.dataclass import dataclass
from encoder_engine.errors import BatchError, ConfigError
from encoder_engine.packing.draws import sequence_keys, token_draws

if TYPE_CHECKING:
    import numpy.typing as npt

    from encoder_engine.packing.clean import CleanBatch

    Bools = npt.NDArray[np.bool_]
    Rows = npt.NDArray[np.int64]

__all__ = ["MaskedTokens", "Masking", "Unit", "span_length"]

Unit = Literal["token", "word", "span", "salient"]
SPANS: tuple[Unit, ...] = ("span", "salient")


@dataclass(frozen=True, kw_only=True, eq=False)
class MaskedTokens:
    """A batch with masked tokens, and the labels of these tokens.

    ``input_ids`` int32 [T]: the model's input.
    ``rows`` int64 [M], ascending: the indices of the tokens to predict in the packed batch.
    ``labels`` int64 [M]: the ids of these tokens before masking.
    ``spans`` int64 [S, 2]: first row and length of each span; None where tokens or words are drawn.
    """

    input_ids: npt.NDArray[np.int32]
    rows: Rows
    labels: Rows
    spans: Rows | None = None


@dataclass(frozen=True, kw_only=True)
class Masking:
    """Chooses the tokens to predict and masks them (Devlin et al. 2019; spans: Joshi et al. 2020).

    ``mask_probability``: the share of non-special tokens that is chosen.
    ``unit``: ``"token"`` and ``"word"`` choose each token or whole word independently. ``"span"``
    draws spans of whole words until the sequence's share is spent. Their number of words is
    geometric with parameter ``success``, truncated at ``longest``; their start is uniform over the
    positions with enough free words. The last span is kept with the probability that makes the
    expected share exact. ``"salient"`` first draws from the spans that the corpus marks, names and
    dates (Guu et al. 2020), in a random order, and spends the rest of the share as ``"span"``. A
    span longer than the rest of the share is the sequence's last span, kept or not: a sequence that
    draws a long span first may get no mask. Drawing further spans would exceed the expected share.
    ``mask_share``: the share of the chosen tokens replaced by ``mask_id``.
    ``random_share``: the share replaced by random tokens; the rest is unchanged. All tokens of a
    span are replaced in the same way.
    ``token_counts``: random tokens are drawn in proportion to these counts; None: uniformly from
    ``vocab_size``.

    Masks are a pure function of (seed, epoch, sequence number). Raises :class:`ConfigError` for
    values out of range.
    """

    mask_id: int
    vocab_size: int
    mask_probability: float = 0.15
    unit: Unit = "token"
    mask_share: float = 0.8
    random_share: float = 0.1
    success: float = 0.2
    longest: int = 10
    token_counts: tuple[int, ...] | None = None

    def __post_init__(self) -> None:
        if self.unit not in get_args(Unit):
            units = ", ".join(map(repr, get_args(Unit)))
            raise ConfigError(f"unit must be one of {units}, got {self.unit!r}")
        if not 0.0 < self.mask_probability < 1.0:
            raise ConfigError(
                f"mask_probability must lie between 0 and 1, got {self.mask_probability}"
            )
        shares = (self.mask_share, self.random_share)
        # Every comparison with NaN is false.
        if not (min(shares) >= 0.0 and sum(shares) <= 1.0 + 1e-9):
            raise ConfigError(
                f"mask_share and random_share must be at least 0 and at most 1 together, got "
                f"{self.mask_share} and {self.random_share}"
            )
        if not 0 <= self.mask_id < self.vocab_size:
            raise ConfigError(
                f"mask_id is {self.mask_id}, the vocabulary has {self.vocab_size} tokens"
            )
        if not 0.0 < self.success <= 1.0 or self.longest < 1:
            raise ConfigError(
                f"success must be above 0 and at most 1, and longest at least 1, got "
                f"{self.success} and {self.longest}"
            )
        counts = self.token_counts
        if counts is not None and (len(counts) != self.vocab_size or min(counts) < 0):
            raise ConfigError(
                f"token_counts must be {self.vocab_size} numbers of at least 0, got {len(counts)}"
            )
        if counts is not None and sum(counts) == 0:
            raise ConfigError("token_counts are all 0: no token could be drawn")

    def __call__(self, batch: CleanBatch, seed: int) -> MaskedTokens:
        """Choose tokens of a batch to predict, and replace them in the model's input.

        Raises :class:`BatchError` for the unit ``"salient"`` of a batch without salient spans.
        """
        if self.unit in SPANS:
            spans = self._choose_spans(batch, seed)
            # The draw of a span's first token decides for the whole span.
            deciding = np.repeat(spans[:, 0], spans[:, 1])
            rows = deciding + _places_within(spans[:, 1])
        else:
            spans = None
            rows = deciding = np.flatnonzero(self._choose(batch, seed)).astype(np.int64)
        labels = batch.input_ids[rows].astype(np.int64)
        decisions = token_draws(batch, seed, "replace")[deciding]
        seen = batch.input_ids.copy()
        seen[rows[decisions < self.mask_share]] = self.mask_id
        other = (decisions >= self.mask_share) & (decisions < self.mask_share + self.random_share)
        draws = token_draws(batch, seed, "other token")[rows[other]]
        seen[rows[other]] = self._draw_tokens(draws)
        return MaskedTokens(input_ids=seen, rows=rows, labels=labels, spans=spans)

    def _choose(self, batch: CleanBatch, seed: int) -> Bools:
        draws = token_draws(batch, seed, "choose")
        if self.unit == "word":
            # The draw of a word's first token decides for the whole word.
            first = np.flatnonzero(batch.word_starts)
            words = np.cumsum(batch.word_starts) - 1
            draws = draws[first][words]
        chosen: Bools = (draws < self.mask_probability) & ~batch.special
        return chosen

    @cached_property
    def _cumulative(self) -> npt.NDArray[np.float64]:
        assert self.token_counts is not None
        sums = np.cumsum(np.asarray(self.token_counts, np.float64))
        shares: npt.NDArray[np.float64] = sums / sums[-1]
        return shares

    def _draw_tokens(self, draws: npt.NDArray[np.float64]) -> npt.NDArray[np.int32]:
        if self.token_counts is None:
            return (draws * self.vocab_size).astype(np.int32)
        return np.searchsorted(self._cumulative, draws, side="right").astype(np.int32)

    def _choose_spans(self, batch: CleanBatch, seed: int) -> Rows:
        """Draw the spans of a batch to mask; return first row and length, int64 [S, 2], sorted."""
        salient = batch.salient if self.unit == "salient" else None
        if self.unit == "salient" and salient is None:
            raise BatchError(
                "unit is 'salient', and the batch has no salient spans; prepare the corpus "
                "by `encoder-engine prepare --salient`"
            )
        keys = sequence_keys(batch, seed, "spans")
        found = [np.zeros((0, 2), np.int64)]
        for sequence, key in enumerate(keys):
            begin, end = batch.cu_seqlens[sequence : sequence + 2]
            spans = self._spans_of(
                batch.special[begin:end],
                batch.word_starts[begin:end],
                int(key),
                None if salient is None else salient[begin:end],
            )
            if spans:
                of_sequence = np.asarray(sorted(spans), np.int64)
                of_sequence[:, 0] += begin
                found.append(of_sequence)
        return np.concatenate(found)

    def _spans_of(
        self,
        special: Bools,
        word_starts: Bools,
        key: int,
        salient: npt.NDArray[np.uint8] | None = None,
    ) -> list[tuple[int, int]]:
        """Draw the spans to mask in one sequence; return first token and length of each."""
        left = self.mask_probability * (len(special) - int(special.sum()))
        if left <= 0.0:
            return []
        starts = np.flatnonzero(word_starts)
        # 1 for a free word. bytearray.find searches runs in C: the fastest search in Python.
        free = bytearray((~np.logical_or.reduceat(special, starts)).tobytes())
        edges = [*starts.tolist(), len(word_starts)]
        draws = _Draws(key)
        spans: list[tuple[int, int]] = []
        marked = [] if salient is None else _salient_words(salient, starts)
        # Sorted by a draw each: a random order.
        marked = [words for _, words in sorted((next(draws), words) for words in marked)]
        while left > 0.0:
            if marked:
                word, number = marked.pop()
            else:
                number = self._fitting_number(free, next(draws))
                if number == 0:
                    break
                word = _fitting_start(free, number, draws)
            free[word : word + number] = bytes(number)
            first, length = edges[word], edges[word + number] - edges[word]
            if length > left and next(draws) * length >= left:
                break
            spans.append((first, length))
            left -= length
        return spans

    def _fitting_number(self, free: bytearray, draw: float) -> int:
        """Return a span's number of words, at most that of the longest run of free words.

        ``draw``: a uniform number in [0, 1), see :func:`span_length`. ``free``: 1 for each word
        that may still be masked; the result is 0 if there is none.
        """
        number = span_length(draw, self.success, self.longest)
        while number and free.find(b"\1" * number) < 0:
            number -= 1
        return number


def _salient_words(salient: npt.NDArray[np.uint8], starts: Rows) -> list[tuple[int, int]]:
    """Return the first word and the number of words of each salient span; no word is in two.

    ``salient``: 1 for a span's first token, 2 for its others; ``starts``: first tokens of words.
    """
    before = np.concatenate([np.zeros(1, np.uint8), salient[:-1]])
    # A sequence may begin within a span.
    first = np.flatnonzero((salient == 1) | ((salient == 2) & (before == 0)))
    after = np.concatenate([salient[1:], np.zeros(1, np.uint8)])
    last = np.flatnonzero((salient > 0) & (after != 2))
    begins = np.searchsorted(starts, first, side="right") - 1
    ends = np.searchsorted(starts, last, side="right")
    spans: list[tuple[int, int]] = []
    done = 0
    for begin, end in zip(begins.tolist(), ends.tolist(), strict=True):
        # Two spans may share a word.
        if end > max(begin, done):
            spans.append((max(begin, done), end - max(begin, done)))
            done = end
    return spans


class _Draws:
    """Yields uniform numbers in [0, 1) from a key (Philox: Salmon et al. 2011), 128 at a time."""

    def __init__(self, key: int) -> None:
        self._generator = np.random.Generator(np.random.Philox(key=key))
        self._drawn: list[float] = []

    def __next__(self) -> float:
        if not self._drawn:
            self._drawn = self._generator.random(128).tolist()
        return self._drawn.pop()


def _fitting_start(free: bytearray, number: int, draws: _Draws) -> int:
    """Return, drawn uniformly, the first word of a run of ``number`` free words; one must exist.

    ``free``: 1 for each word that may still be masked.
    """
    run, last = b"\1" * number, len(free) - number + 1
    for _ in range(len(free)):
        word = int(next(draws) * last)
        if free.startswith(run, word):
            return word
    # Rejection sampling failed, since few words fit: choose among those that do.
    fitting = [word for word in range(last) if free.startswith(run, word)]
    return fitting[int(next(draws) * len(fitting))]


def _places_within(lengths: Rows) -> Rows:
    """Return the index of each element within its run: run lengths [2, 3] give [0, 1, 0, 1, 2]."""
    starts = np.cumsum(lengths) - lengths
    return np.arange(int(lengths.sum()), dtype=np.int64) - np.repeat(starts, lengths)


def span_length(draw: float, success: float, longest: int) -> int:
    """Convert a uniform draw to a length of 1 to ``longest``: P(l) ~ (1 - success)^(l - 1)."""
    if success == 1.0:
        return 1
    # The inverse CDF of the truncated, renormalised geometric distribution.
    mass = 1.0 - (1.0 - success) ** longest
    return min(int(math.log1p(-draw * mass) / math.log1p(-success)) + 1, longest)
