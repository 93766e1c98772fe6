"""Which tokens a model has to predict, and what it sees in their place.

Dimensions: T tokens, B sequences, M tokens to predict, S spans.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Literal

import numpy as np

from encoder_engine.errors import ConfigError
from encoder_engine.objectives.draws import sequence_keys, token_draws

if TYPE_CHECKING:
    import numpy.typing as npt

    from encoder_engine.packing.clean import CleanBatch

    Bools = npt.NDArray[np.bool_]
    Rows = npt.NDArray[np.int64]

__all__ = ["MaskedTokens", "Masking", "Unit", "span_length"]

Unit = Literal["token", "word", "span"]


@dataclass(frozen=True, kw_only=True, eq=False)
class MaskedTokens:
    """A batch with tokens hidden, and what they were.

    ``input_ids`` int32 [T]: what the model sees; ``rows`` int64 [M], rising: the tokens to predict;
    ``labels`` int64 [M]: what they were. ``spans`` int64 [S, 2]: first row and length of each run
    that was chosen as one; None where tokens or words were chosen.
    """

    input_ids: npt.NDArray[np.int32]
    rows: Rows
    labels: Rows
    spans: Rows | None = None


@dataclass(frozen=True, kw_only=True)
class Masking:
    """How tokens are chosen and replaced (Devlin et al. 2019; spans: Joshi et al. 2020).

    Of all tokens but the special ones a share of ``rate`` is chosen: each ``"token"`` by itself,
    each whole ``"word"`` by itself, or in a ``"span"`` of whole words, whose number is drawn from a
    geometric distribution of ``success`` cut off at ``longest`` and whose start evenly from where
    so many words are still free. Spans are drawn until a sequence's share is spent; the last one is
    kept as often as makes the share right on average.

    Of the chosen, ``mask_share`` are seen as ``mask_id``, ``random_share`` as another token, the
    rest as they are: decided for each token, and for a span as a whole. Other tokens come evenly
    from the ``vocab_size`` tokens there are or, where ``token_counts`` are given, in proportion to
    those.

    All of it is a function of the seed and of each sequence's epoch and number. Raises
    :class:`ConfigError` for shares that are none.
    """

    mask_id: int
    vocab_size: int
    rate: float = 0.15
    unit: Unit = "token"
    mask_share: float = 0.8
    random_share: float = 0.1
    success: float = 0.2
    longest: int = 10
    token_counts: tuple[int, ...] | None = None

    def __post_init__(self) -> None:
        if self.unit not in ("token", "word", "span"):
            raise ConfigError(f"unit must be 'token', 'word' or 'span', got {self.unit!r}")
        if not 0.0 < self.rate < 1.0:
            raise ConfigError(f"rate must lie between 0 and 1, got {self.rate}")
        shares = (self.mask_share, self.random_share)
        if min(shares) < 0.0 or sum(shares) > 1.0 + 1e-9:
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
        """Choose tokens and hide them."""
        if self.unit == "span":
            spans = self._choose_spans(batch, seed)
            # What is decided where a span begins is decided for all of it.
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
            # A word is chosen by its first token's draw.
            first = np.flatnonzero(batch.word_starts)
            words = np.cumsum(batch.word_starts) - 1
            draws = draws[first][words]
        chosen: Bools = (draws < self.rate) & ~batch.special
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
        """Return first row and length of each span, int64 [S, 2], from the first to the last."""
        keys = sequence_keys(batch, seed, "spans")
        found = [np.zeros((0, 2), np.int64)]
        for sequence, key in enumerate(keys):
            begin, end = batch.cu_seqlens[sequence : sequence + 2]
            spans = self._spans_of(batch.special[begin:end], batch.word_starts[begin:end], int(key))
            if spans:
                of_sequence = np.asarray(sorted(spans), np.int64)
                of_sequence[:, 0] += begin
                found.append(of_sequence)
        return np.concatenate(found)

    def _spans_of(self, special: Bools, word_starts: Bools, key: int) -> list[tuple[int, int]]:
        """Draw the spans of one sequence: first token and length of each."""
        left = self.rate * (len(special) - int(special.sum()))
        if left <= 0.0:
            return []
        starts = np.flatnonzero(word_starts)
        # Bytes, because Python searches them fastest: 1 for a word that is free to be chosen.
        free = bytearray((~np.logical_or.reduceat(special, starts)).tobytes())
        edges = [*starts.tolist(), len(word_starts)]
        draws = _Draws(key)
        spans: list[tuple[int, int]] = []
        while left > 0.0:
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
        """Draw a number of words; where so many are free nowhere, as many as there are."""
        number = span_length(draw, self.success, self.longest)
        while number and free.find(b"\1" * number) < 0:
            number -= 1
        return number


class _Draws:
    """Numbers in [0, 1) that follow from a key (Philox: Salmon et al. 2011), many at a time."""

    def __init__(self, key: int) -> None:
        self._generator = np.random.Generator(np.random.Philox(key=key))
        self._drawn: list[float] = []

    def __next__(self) -> float:
        if not self._drawn:
            self._drawn = self._generator.random(128).tolist()
        return self._drawn.pop()


def _fitting_start(free: bytearray, number: int, draws: _Draws) -> int:
    """Draw a word from which on so many are free, each as likely as the other; there is one."""
    run, last = b"\1" * number, len(free) - number + 1
    for _ in range(len(free)):
        word = int(next(draws) * last)
        if free.startswith(run, word):
            return word
    # Hardly any word fits: choose among those that do.
    fitting = [word for word in range(last) if free.startswith(run, word)]
    return fitting[int(next(draws) * len(fitting))]


def _places_within(lengths: Rows) -> Rows:
    """Count from 0 within each run: [2, 3] gives [0, 1, 0, 1, 2]."""
    starts = np.cumsum(lengths) - lengths
    return np.arange(int(lengths.sum()), dtype=np.int64) - np.repeat(starts, lengths)


def span_length(draw: float, success: float, longest: int) -> int:
    """Turn a draw from [0, 1) into 1 to ``longest``, geometric: P(l) ~ (1 - success)^(l - 1)."""
    if success == 1.0:
        return 1
    # The inverse of the distribution function of a geometric distribution cut off and scaled up.
    mass = 1.0 - (1.0 - success) ** longest
    return min(int(math.log1p(-draw * mass) / math.log1p(-success)) + 1, longest)
