"""T5's span corruption (Raffel et al. 2020): sentinels replace spans, which become the target.

``Thank you <X> me to your party <Y> week .`` -> ``<X> for inviting <Y> last <Z>``.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import TYPE_CHECKING, Generic, TypeVar

import numpy as np

from encoder_engine.dataclass import dataclass
from encoder_engine.errors import BatchError, ConfigError
from encoder_engine.packing.draws import row_generator

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy.typing as npt

__all__ = ["Noised", "SpanCorruption", "restore_spans"]

Token = TypeVar("Token", bound=Hashable)


@dataclass(frozen=True, kw_only=True)
class Noised(Generic[Token]):
    """A sequence-to-sequence training row: the encoder's input and the decoder's target."""

    inputs: list[Token]
    targets: list[Token]


@dataclass(frozen=True, kw_only=True)
class SpanCorruption(Generic[Token]):
    """Replaces spans of tokens by sentinels, and makes the spans the target.

    ``sentinels``: ``<extra_id_0>``, ``<extra_id_1>``, ..., as strings or ids, in the order of use.
    The target ends with the first sentinel that the input does not use.
    ``share``: the share of tokens in spans, rounded to a whole number for each row.
    ``mean_length``: the mean length of a span. A row with n tokens in spans has
    n / ``mean_length`` spans, rounded, and at least one.

    Lengths are drawn uniformly from all ways to divide these tokens among the spans, as in T5.
    Positions are drawn uniformly from all that leave a token between two spans. (T5's code always
    begins a row with a kept token, and ends it with a span.)

    Raises :class:`ConfigError` for values out of range.
    """

    sentinels: Sequence[Token]
    share: float = 0.15
    mean_length: float = 3.0

    def __post_init__(self) -> None:
        if not 0.0 < self.share < 1.0:
            raise ConfigError(f"share must lie between 0 and 1, got {self.share}")
        if not self.mean_length >= 1.0:
            raise ConfigError(f"mean_length must be at least 1, got {self.mean_length}")
        if len(set(self.sentinels)) < len(self.sentinels):
            raise ConfigError("sentinels must differ from each other")

    def __call__(
        self, tokens: Sequence[Token], *, seed: int, epoch: int = 0, index: int = 0
    ) -> Noised[Token]:
        """Corrupt a row: a pure function of seed, epoch and index.

        A row of one token gets no span, because one token must be kept. Raises :class:`BatchError`
        for a row that needs more sentinels than there are, and for a row that contains a sentinel.
        """
        self._check(tokens, index)
        generator = row_generator(seed, epoch, index, "span corruption")
        starts, lengths = self._spans(len(tokens), generator)
        if len(starts) >= len(self.sentinels):
            raise BatchError(
                f"row {index} has {len(tokens)} tokens and needs {len(starts) + 1} sentinels, got "
                f"{len(self.sentinels)}; shorten the row, or give more sentinels",
                row=index,
            )
        inputs: list[Token] = []
        targets: list[Token] = []
        kept_from = 0
        for sentinel, start, length in zip(self.sentinels, starts, lengths, strict=False):
            inputs += [*tokens[kept_from:start], sentinel]
            targets += [sentinel, *tokens[start : start + length]]
            kept_from = start + length
        inputs += tokens[kept_from:]
        return Noised(inputs=inputs, targets=[*targets, self.sentinels[len(starts)]])

    def _check(self, tokens: Sequence[Token], index: int) -> None:
        taken = set(self.sentinels).intersection(tokens)
        if taken:
            raise BatchError(
                f"row {index} holds the sentinel {next(iter(taken))!r}; remove it from the text",
                row=index,
            )

    def _spans(
        self, num_tokens: int, generator: np.random.Generator
    ) -> tuple[list[int], list[int]]:
        """Draw the first tokens and the lengths of a row's spans, in order."""
        if num_tokens < 2:
            return [], []
        num_noise = min(max(round(num_tokens * self.share), 1), num_tokens - 1)
        num_kept = num_tokens - num_noise
        num_spans = min(max(round(num_noise / self.mean_length), 1), num_noise, num_kept + 1)
        lengths = random_parts(num_noise, num_spans, generator)
        # Each span follows 0 .. num_kept kept tokens, and no two spans the same number of them.
        before = np.sort(generator.choice(num_kept + 1, num_spans, replace=False))
        starts = before + np.cumsum(lengths) - lengths
        return starts.tolist(), lengths.tolist()


def random_parts(
    total: int, num_parts: int, generator: np.random.Generator
) -> npt.NDArray[np.int64]:
    """Divide a sum into positive parts, uniformly at random among all ways, int64 [num_parts]."""
    cuts = np.sort(generator.choice(total - 1, num_parts - 1, replace=False)) + 1
    return np.diff(np.concatenate([[0], cuts, [total]])).astype(np.int64)


def restore_spans(noised: Noised[Token], sentinels: Sequence[Token]) -> list[Token]:
    """Put the spans of the target back into the input: the inverse of :class:`SpanCorruption`.

    Raises :class:`BatchError` unless input and target have the same sentinels in the same order,
    each once, and the target begins with one.
    """
    marks = set(sentinels)
    spans: dict[Token, list[Token]] = {}
    last: list[Token] = []
    for token in noised.targets:
        if token in marks:
            last = spans[token] = []
        else:
            last.append(token)
    used, given = (
        [token for token in tokens if token in marks] for tokens in (noised.inputs, noised.targets)
    )
    # Tokens before the first sentinel, or after one that is given again, would be lost.
    complete = noised.targets[:1] == given[:1] and len(spans) == len(given)
    if given[:-1] != used or last or not complete:
        raise BatchError(
            f"the input has the sentinels {used}, the target {given}; expected the same ones in "
            "the same order, each once, the first at the beginning of the target, and one more at "
            "its end"
        )
    restored: list[Token] = []
    for token in noised.inputs:
        restored += spans.get(token, [token])
    return restored
