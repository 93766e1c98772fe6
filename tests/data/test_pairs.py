"""Half of the pairs are right; the wrong ones are wrong in the way that was asked for."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest
from scipy.stats import binomtest, chisquare

from encoder_engine.data.loader import Loader
from encoder_engine.data.pairs import Negative, Pairs, cut_pairs
from encoder_engine.data.shards import Document
from encoder_engine.errors import CorpusError
from encoder_engine.training.pretraining.model_builder import build_text
from encoder_engine.training.recipe import DataRecipe
from tests.data.corpora import CLS, SEP, draw_documents, write

if TYPE_CHECKING:
    from pathlib import Path

    from encoder_engine.packing.clean import CleanBatch

LEVEL = 1e-3
Segments = tuple[list[int], list[int]]


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    write(tmp_path, draw_documents(400, most_sentences=9))
    return tmp_path


def pairs(directory: Path, negative: Negative, max_length: int = 48) -> Pairs:
    from encoder_engine.data.shards import Corpus

    return cut_pairs(Corpus.open(directory), max_length, negative=negative, seed=3)


def segments(batch: CleanBatch) -> list[Segments]:
    """Take pairs apart, and check their frames."""
    assert batch.token_type_ids is not None
    found = []
    for begin, end in zip(batch.cu_seqlens[:-1], batch.cu_seqlens[1:], strict=True):
        ids, special = batch.input_ids[begin:end], batch.special[begin:end]
        opening, middle, last = (int(place) for place in np.flatnonzero(special))
        assert (opening, last) == (0, end - begin - 1)
        assert ids[special].tolist() == [CLS, SEP, SEP]
        types = batch.token_type_ids[begin:end]
        assert types.tolist() == [0] * (middle + 1) + [1] * (last - middle)
        found.append((ids[1:middle].tolist(), ids[middle + 1 : last].tolist()))
    return found


def run_of(made: Pairs, number: int) -> list[int]:
    runs = made.runs
    shard = made.corpus.shards[runs.shards[number]]
    return [int(t) for t in shard.tokens[runs.starts[number] : runs.stops[number]]]


@pytest.mark.parametrize("negative", ["elsewhere", "swapped"])
def test_right_pairs_are_a_run_and_wrong_ones_are_not(directory: Path, negative: Negative) -> None:
    made = pairs(directory, negative)
    batch = made.batch(np.arange(len(made)))
    assert batch.positive is not None
    assert (batch.lengths <= made.lengths).all()
    assert batch.lengths.max() <= 48
    for number, (first, second) in enumerate(segments(batch)):
        assert first
        assert second
        run = run_of(made, number)
        if batch.positive[number]:
            assert first + second == run
        elif negative == "swapped":
            assert second + first == run
            assert first != run[: len(first)]
        else:
            assert first == run[: len(first)]
            assert len(second) <= len(run) - len(first)
            assert second != run[len(first) :]
            # It is the beginning of a run of another document.
            starts = [n for n in range(len(made)) if run_of(made, n)[: len(second)] == second]
            assert any(made.runs.documents[n] != made.runs.documents[number] for n in starts)
    share = binomtest(int(batch.positive.sum()), len(made), 0.5)
    assert share.pvalue > LEVEL


def test_runs_are_split_between_sentences_each_as_often(directory: Path) -> None:
    made = pairs(directory, "swapped")
    shard = made.corpus.shards[0]
    runs = made.runs
    inner = [
        np.searchsorted(shard.sentences, (runs.starts[n] + 1, runs.stops[n]))
        for n in range(len(made))
    ]
    counts = np.array([high - low for low, high in inner])
    number = int(np.argmax(counts))
    low, high = inner[number]
    assert high - low > 3
    many = made.batch(np.full(4000, number), places=np.arange(4000))
    assert many.positive is not None
    firsts = [
        len(first) if right else len(second)
        for (first, second), right in zip(segments(many), many.positive, strict=True)
    ]
    borders = shard.sentences[low:high] - runs.starts[number]
    found = np.array([firsts.count(int(border)) for border in borders])
    assert found.sum() == 4000
    assert chisquare(found).pvalue > LEVEL


def test_pairs_follow_from_seed_epoch_and_place_alone(directory: Path) -> None:
    made = pairs(directory, "elsewhere")
    numbers = np.arange(30)
    once = segments(made.batch(numbers))
    assert segments(made.batch(numbers[::-1])) == once[::-1]
    assert segments(made.batch(numbers, epoch=1)) != once
    assert segments(made.batch(numbers, places=numbers + 100)) != once


def test_a_loader_takes_pairs(directory: Path) -> None:
    made = pairs(directory, "swapped")
    loader = Loader(samples=made, batch_tokens=256, seed=0)
    taken: list[int] = []
    for batch, position in loader.batches():
        if position.epoch:
            break
        assert batch.cu_seqlens[-1] <= 256
        taken += [len(first) + len(second) for first, second in segments(batch)]
    assert sorted(taken) == sorted((made.runs.stops - made.runs.starts).tolist())


def test_one_sentence_is_split_within(tmp_path: Path) -> None:
    write(tmp_path, [Document([np.arange(10, 30)]), Document([np.array([50])]), *draw_documents(1)])
    made = pairs(tmp_path, "swapped")
    assert [50] not in [run_of(made, n) for n in range(len(made))]
    many = made.batch(np.zeros(300, np.int64), places=np.arange(300))
    cuts = {min(len(first), 20) for first, _ in segments(many)}
    assert cuts == set(range(1, 20))


def test_what_cannot_be_is_refused(tmp_path: Path) -> None:
    write(tmp_path, [Document([np.array([5, 6])])])
    with pytest.raises(CorpusError, match="holds 1 pairs; at least 2 are needed"):
        pairs(tmp_path, "elsewhere")
    with pytest.raises(CorpusError, match="max_length is 4; a pair takes 5"):
        pairs(tmp_path, "elsewhere", max_length=4)
    with pytest.raises(CorpusError, match="negative must be"):
        pairs(tmp_path, "upside down")  # type: ignore[arg-type]


def test_few_pairs_are_parted_so_that_each_part_can_draw_a_wrong_one(tmp_path: Path) -> None:
    for number in (2, 3, 4, 5, 150):
        directory = tmp_path / str(number)
        directory.mkdir()
        write(directory, [Document([np.arange(10, 30)])] * number)
        text = build_text(DataRecipe(corpus=str(directory), max_length=32, form="pairs"), seed=0)
        assert len(text.training) + len(text.held_out) == number
        assert bool(len(text.held_out)) == (number >= 4)
        for part in (text.training, text.held_out):
            for epoch in range(8):
                part.batch(np.arange(len(part)), epoch=epoch)
    with pytest.raises(CorpusError, match="only one pair"):
        pairs(directory, "elsewhere").take(np.zeros(1, np.int64))


def test_a_sentence_begins_a_word_in_pairs_as_elsewhere(directory: Path) -> None:
    made = pairs(directory, "swapped")
    one, many = made.batch(np.arange(40)), made.runs.batch(np.arange(40))
    assert one.positive is not None
    unmarked = 0
    for number in np.flatnonzero(one.positive):
        begin, end = one.cu_seqlens[number : number + 2]
        words = one.word_starts[begin:end][~one.special[begin:end]]
        begin, end = many.cu_seqlens[number : number + 2]
        expected = many.word_starts[begin:end][~many.special[begin:end]]
        # Where the two meet a word begins in any case.
        assert words[expected].all()
        assert words.sum() <= expected.sum() + 1
        ids = many.input_ids[begin:end][~many.special[begin:end]]
        unmarked += int((expected & ~made.corpus.word_starts[ids])[1:].sum())
    assert unmarked > 10
