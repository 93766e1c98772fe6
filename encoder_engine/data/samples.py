"""Cuts a corpus into training sequences, and reads batches of them.

A sequence is a run of tokens within a shard, kept as two offsets: cutting reads only the offsets
of sentences and documents. Tokens are read, and framed by [CLS] and [SEP], batch by batch.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from encoder_engine.dataclass import dataclass
from encoder_engine.errors import CorpusError
from encoder_engine.packing.clean import CleanBatch

if TYPE_CHECKING:
    import numpy.typing as npt

    from encoder_engine.data.shards import Corpus, Shard

    Numbers = npt.NDArray[np.int64]

__all__ = ["Samples", "after_special", "cut_blocks", "cut_sentences", "hold_out"]


@dataclass(frozen=True, kw_only=True, eq=False)
class Samples:
    """N training sequences of a corpus, each a run of tokens within a shard.

    ``shards``, ``starts``, ``stops`` int64 [N]: the shard of each sequence, and its range of
    tokens. ``lengths`` int64 [N]: tokens, special ones included: [CLS] before, [SEP] after, and
    [SEP] between documents (Liu et al. 2019). ``documents`` int64 [N]: the index of the sequence's
    first document in the corpus. ``languages`` uint16 [N]: the language of that document.
    ``separated=False``: no [SEP] between documents.
    """

    corpus: Corpus
    shards: Numbers
    starts: Numbers
    stops: Numbers
    lengths: Numbers
    languages: npt.NDArray[np.uint16]
    documents: Numbers
    separated: bool = True

    def take(self, numbers: Numbers) -> Samples:
        """Return the sequences with the indices ``numbers``."""
        taken = {
            name: getattr(self, name)[numbers]
            for name in ("shards", "starts", "stops", "lengths", "languages", "documents")
        }
        return replace(self, **taken)

    def __len__(self) -> int:
        return len(self.starts)

    def batch(
        self, numbers: Numbers, *, places: Numbers | None = None, epoch: int = 0
    ) -> CleanBatch:
        """Read the sequences with these indices, int64 [B], as one packed batch.

        ``places`` int64 [B]: the sequences' indices in the epoch's order, by which masks are drawn;
        default: ``numbers``.
        """
        vocabulary = self.corpus.vocabulary
        offsets = np.concatenate([[0], np.cumsum(self.lengths[numbers])]).astype(np.int32)
        ids = np.empty(int(offsets[-1]), np.int32)
        special, first = np.zeros(len(ids), np.bool_), np.zeros(len(ids), np.bool_)
        salient = np.zeros(len(ids), np.uint8) if self.corpus.has_salient else None
        for number, begin, end in zip(numbers, offsets[:-1], offsets[1:], strict=True):
            shard = self.corpus.shards[self.shards[number]]
            start, stop = int(self.starts[number]), int(self.stops[number])
            tokens = shard.tokens[start:stop].astype(np.int32)
            borders = _document_borders(shard, start, stop) - start
            borders = borders if self.separated else borders[:0]
            frame = np.zeros(end - begin, np.bool_)
            frame[0] = frame[-1] = True
            # The k-th border moves right by the k separators before it, and by [CLS].
            frame[borders + 1 + np.arange(len(borders))] = True
            ids[begin:end][~frame] = tokens
            ids[begin:end][frame] = vocabulary.sep_id
            ids[begin] = vocabulary.cls_id
            special[begin:end] = frame
            if salient is not None and shard.salient is not None:
                salient[begin:end][~frame] = shard.salient[start:stop]
            low, high = np.searchsorted(shard.sentences, (start, stop))
            first[begin + np.flatnonzero(~frame)[shard.sentences[low:high] - start]] = True
        return CleanBatch(
            input_ids=ids,
            cu_seqlens=offsets,
            numbers=np.asarray(numbers if places is None else places, np.int64),
            special=special,
            word_starts=self.corpus.word_starts[ids] | special | after_special(special) | first,
            epoch=epoch,
            salient=salient,
        )


def after_special(special: npt.NDArray[np.bool_]) -> npt.NDArray[np.bool_]:
    """Return for each token whether it directly follows a special token, bool [T].

    Such a token begins a word, also where the text was cut within one. ``special``: bool [T].
    """
    return np.concatenate([np.zeros(1, np.bool_), special[:-1]])[: len(special)]


def cut_sentences(corpus: Corpus, max_length: int, *, across_documents: bool = False) -> Samples:
    """Fill sequences of at most ``max_length`` tokens with consecutive whole sentences.

    A sentence longer than a sequence is cut. ``across_documents``: a sequence continues into the
    next document after a separator (FULL-SENTENCES of Liu et al. 2019); otherwise a sequence ends
    with its document. Raises :class:`CorpusError` where no token fits, or the corpus is empty.
    """
    room = _room(max_length)
    parts = [_cut_shard(s, room, across_documents=across_documents) for s in corpus.shards]
    return _samples_of(corpus, parts)


def cut_blocks(corpus: Corpus, max_length: int) -> Samples:
    """Cut each shard into sequences of ``max_length`` tokens, special ones included.

    The last of a shard may be shorter. Sequences cross sentences and documents without separators.
    Raises :class:`CorpusError` as :func:`cut_sentences` does.
    """
    room = _room(max_length)
    parts = []
    for shard in corpus.shards:
        starts = np.arange(0, len(shard.tokens), room, dtype=np.int64)
        stops = np.minimum(starts + room, len(shard.tokens))
        parts.append((starts, stops, stops - starts + 2))
    return replace(_samples_of(corpus, parts), separated=False)


def hold_out(samples: Samples, share: float, *, at_least: int = 1) -> tuple[Numbers, Numbers]:
    """Split the indices of sequences into a training part and a held-out part, int64 each.

    ``share``: about how much is held out, at least a run, from 0 (nothing) to 1. Runs of
    neighbouring sequences, drawn by one seed, are held out together, because text next to training
    text is more similar to it than other text. A run has up to 64 sequences; the last also those
    left over. Each part has at least ``at_least`` sequences; where there are too few for that, the
    held-out part is empty.
    """
    number = len(samples)
    run = min(max(number // 200, at_least), 64)
    # The last run takes what is left over.
    num_runs = number // run
    if share == 0.0 or num_runs < 2:
        return np.arange(number), np.zeros(0, np.int64)
    drawn = np.random.default_rng(0).permutation(num_runs)
    kept_back = drawn[: min(max(round(share * num_runs), 1), num_runs - 1)]
    back = np.isin(np.minimum(np.arange(number) // run, num_runs - 1), kept_back)
    return np.flatnonzero(~back), np.flatnonzero(back)


def _room(max_length: int) -> int:
    if max_length < 3:
        raise CorpusError(f"max_length is {max_length}; [CLS], a token and [SEP] take 3")
    return max_length - 2


def _samples_of(corpus: Corpus, parts: list[tuple[Numbers, Numbers, Numbers]]) -> Samples:
    """Return a corpus's :class:`Samples`; ``parts``: starts, stops and lengths of each shard's."""
    starts, stops, lengths = (
        np.concatenate([part[place] for part in parts]) if parts else np.zeros(0, np.int64)
        for place in range(3)
    )
    if not len(starts):
        raise CorpusError(f"{corpus.directory} holds no token")
    shards = np.repeat(np.arange(len(parts)), [len(part[0]) for part in parts])
    languages, documents, before = [], [], 0
    for shard, part in zip(corpus.shards, parts, strict=True):
        of_shard = np.searchsorted(shard.document_starts, part[0], side="right") - 1
        languages.append(shard.languages[of_shard])
        documents.append(of_shard + before)
        before += shard.entry.num_documents
    return Samples(
        corpus=corpus,
        shards=shards,
        starts=starts,
        stops=stops,
        lengths=lengths,
        languages=np.concatenate(languages),
        documents=np.concatenate(documents),
    )


def _document_borders(shard: Shard, start: int, stop: int) -> Numbers:
    """Return the first tokens of the documents that begin after ``start`` and before ``stop``."""
    first, last = np.searchsorted(shard.document_starts, (start + 1, stop))
    return shard.document_starts[first:last]


def _cut_shard(
    shard: Shard, room: int, *, across_documents: bool
) -> tuple[Numbers, Numbers, Numbers]:
    """Return the sequences of a shard: first tokens, ends, and lengths with special tokens.

    ``room``: the most tokens of a sequence, without [CLS] and the last [SEP].
    """
    sentences, documents = np.asarray(shard.sentences), shard.document_starts
    begins, ends, sizes = [], [], []
    start, num_tokens = 0, len(shard.tokens)
    while start < num_tokens:
        document = int(np.searchsorted(documents, start, side="right"))
        stop, separators = _last_that_fits(sentences, documents[document:], start, room)
        if not across_documents and stop > documents[document]:
            stop, separators = int(documents[document]), 0
        begins.append(start)
        ends.append(stop)
        sizes.append(stop - start + 2 + separators)
        start = stop
    return tuple(np.asarray(x, np.int64) for x in (begins, ends, sizes))  # type: ignore[return-value]


def _last_that_fits(sentences: Numbers, borders: Numbers, start: int, room: int) -> tuple[int, int]:
    """Return the end of the last sentence that fits in ``room``, and the separators up to there.

    ``borders``: the first tokens of the next documents; each one crossed takes a separator. A first
    sentence longer than ``room`` is cut.
    """
    separators = 0
    while True:
        stop = int(sentences[np.searchsorted(sentences, start + room - separators, "right") - 1])
        if stop <= start:
            return start + room, 0  # one sentence, longer than the room
        crossed = int(np.searchsorted(borders, stop))
        if crossed <= separators:
            return stop, crossed
        separators += 1
