"""Finds the highest-scoring legal tags of packed words (Viterbi decoding).

Dimensions: M packed word rows, B sequences, K tags.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Self

import numpy as np

from encoder_engine.dataclass import dataclass
from encoder_engine.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import numpy.typing as npt

    BoolArray = npt.NDArray[np.bool_]
    FloatArray = npt.NDArray[np.floating]

__all__ = ["LegalTags", "viterbi", "word_steps"]


@dataclass(frozen=True, kw_only=True, eq=False)
class LegalTags:
    """Which tags may begin a sequence, ``start`` [K], end it, ``end`` [K], and follow another one.

    ``transitions`` [K, K]: by the tag before and the tag itself. All are bool.
    """

    start: BoolArray
    end: BoolArray
    transitions: BoolArray

    @classmethod
    def everything(cls, num_tags: int) -> Self:
        """Return rules that allow every one of ``num_tags`` tags everywhere."""
        free = np.ones(num_tags, np.bool_)
        return cls(start=free, end=free, transitions=np.ones((num_tags, num_tags), np.bool_))

    @classmethod
    def bio(cls, tags: Sequence[str]) -> Self:
        """Return rules that allow I-type only after B-type or I-type; other tags are free."""
        free = np.ones(len(tags), np.bool_)
        start, transitions = free.copy(), np.ones((len(tags), len(tags)), np.bool_)
        for place, tag in enumerate(tags):
            if tag.startswith("I-"):
                opening = (tag, "B-" + tag[2:])
                start[place] = False
                transitions[:, place] = [other in opening for other in tags]
        return cls(start=start, end=free, transitions=transitions)


def viterbi(
    emissions: FloatArray,
    offsets: npt.NDArray[np.integer],
    start: FloatArray,
    end: FloatArray,
    transitions: FloatArray,
) -> npt.NDArray[np.int64]:
    """Return each sequence's tags with the highest score, int64 [M]; of equal ones the first.

    ``emissions`` [M, K]; ``offsets`` [B + 1]: the first row of each sequence, then M; ``start``,
    ``end`` [K] and ``transitions`` [K, K]: -inf where a tag is illegal.

    Raises :class:`InputError` where no legal tags have a score above -inf.
    """
    steps = list(word_steps(offsets))
    tags = np.zeros(len(emissions), np.int64)
    if not steps:
        return tags
    best = (emissions[steps[0]] + start).astype(np.float64)
    pointers: list[npt.NDArray[np.int64]] = []
    finals = [best]
    for rows in steps[1:]:
        ways = finals[-1][: len(rows), :, None] + transitions
        pointers.append(ways.argmax(1))
        finals.append(ways.max(1) + emissions[rows])
    # Backwards: a sequence joins at its last word, and then follows the pointers.
    current = np.zeros(0, np.int64)
    for step in reversed(range(len(steps))):
        rows = steps[step]
        if step + 1 < len(steps):
            current = pointers[step][np.arange(len(current)), current]
        ending = finals[step][len(current) :] + end
        if len(ending) and not (ending.max(1) > -np.inf).all():
            raise InputError(
                "no legal tags have a score above -inf; the scores are not finite, or the "
                "constraints allow no tags"
            )
        current = np.concatenate([current, ending.argmax(1)])
        tags[rows] = current
    return tags


def word_steps(offsets: npt.NDArray[np.integer]) -> Iterator[npt.NDArray[np.int64]]:
    """Yield the rows of all sequences' first words, then of their second words, and so on."""
    lengths = np.diff(offsets).astype(np.int64)
    order = np.argsort(-lengths, kind="stable")
    starts, lengths = offsets[:-1][order].astype(np.int64), lengths[order]
    for step in range(int(lengths.max(initial=0))):
        num_there = int(np.searchsorted(-lengths, -step, side="left"))
        yield starts[:num_there] + np.int64(step)
