"""Pairs of segments for next sentence prediction and sentence order prediction."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Literal, NamedTuple

import numpy as np

from encoder_engine.data.samples import Samples, after_special, cut_sentences
from encoder_engine.dataclass import dataclass
from encoder_engine.errors import CorpusError
from encoder_engine.packing.clean import CleanBatch

if TYPE_CHECKING:
    import numpy.typing as npt

    from encoder_engine.data.shards import Corpus

    Numbers = npt.NDArray[np.int64]
    Tokens = npt.NDArray[np.int32]

__all__ = ["Negative", "Pairs", "cut_pairs"]

Negative = Literal["elsewhere", "swapped"]
# [CLS] first [SEP] second [SEP]
NUM_SPECIAL = 3


class Segment(NamedTuple):
    """A text segment: tokens ``start`` to ``stop - 1`` of the shard that holds run ``number``."""

    number: int
    start: int
    stop: int


@dataclass(frozen=True, kw_only=True, eq=False)
class Pairs:
    """Pairs of text segments: N runs of a document's sentences, each split into two when read.

    Half of the pairs are negatives. Split point, label and replacement are a pure function of
    ``seed``, the epoch and the index in the epoch.
    ``negative="elsewhere"``: the second segment is replaced by the beginning of another run, of
    another document where possible, and no longer than the one it replaces (Devlin et al. 2019).
    ``negative="swapped"``: the two segments are exchanged (Lan et al. 2020).

    Raises :class:`CorpusError` for a single run with ``"elsewhere"``.
    """

    runs: Samples
    negative: Negative
    seed: int

    def __post_init__(self) -> None:
        if self.negative == "elsewhere" and len(self.runs) == 1:
            raise CorpusError("there is only one pair; a negative needs a segment of another pair")

    def __len__(self) -> int:
        return len(self.runs)

    def take(self, numbers: Numbers) -> Pairs:
        """Return the pairs with the indices ``numbers``."""
        return replace(self, runs=self.runs.take(numbers))

    @property
    def lengths(self) -> Numbers:
        """The most tokens that each pair can have, special ones included, int64 [N]."""
        longer: Numbers = self.runs.lengths + 1
        return longer

    @property
    def languages(self) -> npt.NDArray[np.uint16]:
        """The index of each pair's language, uint16 [N]."""
        return self.runs.languages

    @property
    def corpus(self) -> Corpus:
        """The corpus that the pairs are cut from."""
        return self.runs.corpus

    def batch(
        self, numbers: Numbers, *, places: Numbers | None = None, epoch: int = 0
    ) -> CleanBatch:
        """Read the pairs with these indices, int64 [B], as a batch; see :meth:`Samples.batch`."""
        places = np.asarray(numbers if places is None else places, np.int64)
        vocabulary = self.corpus.vocabulary
        parts: list[Tokens] = []
        begins: list[npt.NDArray[np.bool_]] = []
        types, positive = [], np.zeros(len(numbers), np.bool_)
        cls, sep = (np.array([x], np.int32) for x in (vocabulary.cls_id, vocabulary.sep_id))
        frame = np.ones(1, np.bool_)
        for row, (number, place) in enumerate(zip(numbers, places, strict=True)):
            one, other, right = self._pair(int(number), int(place), epoch)
            (first, begins_first), (second, begins_second) = self._read(one), self._read(other)
            positive[row] = right
            parts += [cls, first, sep, second, sep]
            begins += [frame, begins_first, frame, begins_second, frame]
            types += [0, len(first) + 2, len(second) + 1]
        sizes = np.fromiter((len(part) for part in parts), np.int64, len(parts))
        ids = np.concatenate([np.zeros(0, np.int32), *parts])
        sentences = np.concatenate([np.zeros(0, np.bool_), *begins])
        special = np.repeat(np.tile([True, False, True, False, True], len(numbers)), sizes)
        counts = np.asarray(types, np.int64).reshape(-1, 3)[:, 1:].reshape(-1)
        lengths = sizes.reshape(-1, 5).sum(1)
        return CleanBatch(
            input_ids=ids,
            cu_seqlens=np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32),
            numbers=places,
            special=special,
            word_starts=self.corpus.word_starts[ids] | after_special(special) | sentences,
            epoch=epoch,
            token_type_ids=np.repeat(np.tile([0, 1], len(numbers)), counts).astype(np.int32),
            positive=positive,
        )

    def _pair(self, number: int, place: int, epoch: int) -> tuple[Segment, Segment, bool]:
        """Return a pair's two segments, and whether the second follows the first in the text."""
        generator = np.random.Generator(
            np.random.Philox(np.random.SeedSequence((self.seed, epoch, place)))
        )
        split = self._split(number, generator)
        start, stop = int(self.runs.starts[number]), int(self.runs.stops[number])
        first, second = Segment(number, start, split), Segment(number, split, stop)
        if generator.random() < 0.5:
            return first, second, True
        if self.negative == "swapped":
            return second, first, False
        other = self._elsewhere(number, generator)
        begin, end = int(self.runs.starts[other]), int(self.runs.stops[other])
        return first, Segment(other, begin, min(end, begin + stop - split)), False

    def _split(self, number: int, generator: np.random.Generator) -> int:
        """Draw the token at which run ``number`` is split: the first of a sentence.

        A run of a single sentence is split at any token.
        """
        shard = self.corpus.shards[self.runs.shards[number]]
        start, stop = int(self.runs.starts[number]), int(self.runs.stops[number])
        low, high = np.searchsorted(shard.sentences, (start + 1, stop))
        if low < high:
            return int(shard.sentences[generator.integers(low, high)])
        return int(generator.integers(start + 1, stop))

    def _elsewhere(self, number: int, generator: np.random.Generator) -> int:
        """Draw a run other than ``number``, of another document unless 8 draws find none."""
        documents = self.runs.documents
        other = number
        for _ in range(8):
            other = int(generator.integers(len(self.runs) - 1))
            other += other >= number
            if documents[other] != documents[number]:
                break
        return other

    def _read(self, segment: Segment) -> tuple[Tokens, npt.NDArray[np.bool_]]:
        """Read a segment's tokens, and for each whether it begins a sentence."""
        number, start, stop = segment
        shard = self.corpus.shards[self.runs.shards[number]]
        begins = np.zeros(stop - start, np.bool_)
        low, high = np.searchsorted(shard.sentences, (start, stop))
        begins[shard.sentences[low:high] - start] = True
        return shard.tokens[start:stop].astype(np.int32), begins


def cut_pairs(corpus: Corpus, max_length: int, *, negative: Negative, seed: int) -> Pairs:
    """Cut a corpus into pairs of at most ``max_length`` tokens, special ones included.

    Runs of a single token are left out: they cannot be split. Raises :class:`CorpusError` where no
    pair fits, or fewer than two are left.
    """
    if negative not in ("elsewhere", "swapped"):
        raise CorpusError(f"negative must be 'elsewhere' or 'swapped', got {negative!r}")
    if max_length < NUM_SPECIAL + 2:
        raise CorpusError(
            f"max_length is {max_length}; a pair takes {NUM_SPECIAL + 2} tokens at least"
        )
    runs = cut_sentences(corpus, max_length - 1)
    runs = runs.take(np.flatnonzero(runs.stops - runs.starts > 1))
    if len(runs) < 2:
        raise CorpusError(f"{corpus.directory} holds {len(runs)} pairs; at least 2 are needed")
    return Pairs(runs=runs, negative=negative, seed=seed)
