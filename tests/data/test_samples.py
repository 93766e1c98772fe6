"""Sequences hold every token once, in order, within the length, framed as they should be."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest

from encoder_engine.data.samples import cut_sentences
from encoder_engine.data.shards import Document
from encoder_engine.errors import CorpusError
from tests.data.corpora import CLS, FIRST_CONTINUING, SEP, draw_documents, write

if TYPE_CHECKING:
    from pathlib import Path

LENGTHS = (3, 7, 16, 64, 1000)


@pytest.mark.parametrize("across", [False, True])
@pytest.mark.parametrize("max_length", LENGTHS)
def test_every_token_comes_once_and_in_order(tmp_path: Path, max_length: int, across: bool) -> None:
    shards = [draw_documents(60), draw_documents(1, seed=1), draw_documents(30, seed=2)]
    corpus = write(tmp_path, *shards)
    samples = cut_sentences(corpus, max_length, across_documents=across)
    batch = samples.batch(np.arange(len(samples)))
    expected = [int(t) for shard in shards for d in shard for s in d.sentences for t in s]
    assert batch.input_ids[~batch.special].tolist() == expected
    assert batch.lengths.max() <= max_length
    assert (batch.lengths == samples.lengths).all()
    starts, ends = batch.cu_seqlens[:-1], batch.cu_seqlens[1:] - 1
    assert (batch.input_ids[starts] == CLS).all()
    assert (batch.input_ids[ends] == SEP).all()
    assert batch.special[starts].all()
    assert batch.special[ends].all()
    inner = int(batch.special.sum()) - 2 * len(samples)
    if not across:
        assert inner == 0
    elif max_length == 1000:
        # Only where one sequence runs on is there a separator: all but the shards' ends.
        assert inner == sum(map(len, shards)) - len(samples)


def test_sequences_hold_whole_sentences_and_as_many_as_fit(tmp_path: Path) -> None:
    sentences = [np.full(n, 10 + n) for n in (3, 4, 5, 2, 9)]
    corpus = write(tmp_path, [Document(sentences[:3]), Document(sentences[3:])])

    def cut(max_length: int, *, across: bool) -> list[list[int]]:
        samples = cut_sentences(corpus, max_length, across_documents=across)
        batch = samples.batch(np.arange(len(samples)))
        return [part.tolist() for part in np.split(batch.input_ids, batch.cu_seqlens[1:-1])]

    three, four, five, two, nine = ([10 + n] * n for n in (3, 4, 5, 2, 9))
    assert cut(10, across=False) == [
        [CLS, *three, *four, SEP],
        [CLS, *five, SEP],
        [CLS, *two, SEP],
        [CLS, *nine[:8], SEP],
        [CLS, *nine[8:], SEP],
    ]
    # Five, a separator, two: all the room there is.
    assert cut(10, across=True)[1] == [CLS, *five, SEP, *two, SEP]
    assert cut(9, across=True)[1:3] == [[CLS, *five, SEP], [CLS, *two, SEP]]


def test_words_begin_where_the_vocabulary_says_and_behind_special_tokens(tmp_path: Path) -> None:
    corpus = write(tmp_path, draw_documents(40, most_sentences=1, longest=30))
    samples = cut_sentences(corpus, 12)
    batch = samples.batch(np.arange(len(samples))[::-1])
    assert batch.numbers.tolist() == list(range(len(samples)))[::-1]
    behind = np.roll(batch.special, 1)
    continuing = (batch.input_ids >= FIRST_CONTINUING) & ~behind
    assert (batch.word_starts == ~continuing).all()


def test_a_sentence_begins_with_a_word_whatever_its_token(tmp_path: Path) -> None:
    going_on = FIRST_CONTINUING + 1
    corpus = write(tmp_path, [Document([np.full(n, going_on) for n in (2, 1, 3)])])
    batch = cut_sentences(corpus, 12).batch(np.arange(1))
    framed = [1, 1, 0, 1, 1, 0, 0, 1]
    assert batch.word_starts.astype(int).tolist() == framed


def test_a_corpus_without_text_and_a_length_without_room_are_refused(tmp_path: Path) -> None:
    corpus = write(tmp_path, [])
    with pytest.raises(CorpusError, match="holds no token"):
        cut_sentences(corpus, 8)
    with pytest.raises(CorpusError, match="max_length is 2"):
        cut_sentences(corpus, 2)
