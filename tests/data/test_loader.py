"""Batches are full, the same whoever asks for them, and go on from any position."""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING

import numpy as np
import pytest

from encoder_engine.data.loader import Loader, Position
from encoder_engine.data.order import epoch_order, language_shares, pack_windows
from encoder_engine.data.samples import cut_sentences
from encoder_engine.errors import ConfigError
from tests.data.corpora import draw_documents, write

if TYPE_CHECKING:
    from pathlib import Path

    from encoder_engine.data.samples import Samples
    from encoder_engine.packing.clean import CleanBatch


@pytest.fixture
def samples(tmp_path: Path) -> Samples:
    shards = draw_documents(300), draw_documents(100, seed=1, language=1)
    return cut_sentences(write(tmp_path, *shards), 40)


def content(batch: CleanBatch) -> tuple[object, ...]:
    return (batch.epoch, batch.input_ids.tolist(), batch.numbers.tolist())


def test_an_epoch_holds_every_sequence_once(samples: Samples) -> None:
    loader = Loader(samples=samples, batch_tokens=256, seed=3)
    taken = []
    for batch, position in loader.batches():
        if position.epoch:
            break
        assert batch.cu_seqlens[-1] <= 256
        taken += [part.tolist() for part in np.split(batch.input_ids, batch.cu_seqlens[1:-1])]
    whole = samples.batch(np.arange(len(samples)))
    expected = [part.tolist() for part in np.split(whole.input_ids, whole.cu_seqlens[1:-1])]
    assert sorted(taken) == sorted(expected)
    assert taken != expected


def test_the_stream_goes_on_from_any_position(samples: Samples) -> None:
    loader = Loader(samples=samples, batch_tokens=128, seed=4)
    once = list(islice(loader.batches(), 250))
    assert once[-1][1].epoch >= 2
    for stop in (0, 1, 99, 248):
        again = islice(loader.batches(once[stop][1]), 249 - stop)
        assert [(content(b), p) for b, p in again] == [(content(b), p) for b, p in once[stop + 1 :]]


def test_a_batch_is_the_same_whoever_reads_it_and_when(samples: Samples) -> None:
    loader = Loader(samples=samples, batch_tokens=128, seed=5)
    expected = list(islice(loader.batches(), 60))
    slices = list(islice(loader.slices(), 60))
    for place in reversed(range(60)):
        assert content(loader.batch(slices[place])) == content(expected[place][0])
        assert slices[place].next_position == expected[place][1]


def test_windows_are_packed_at_least_995_permille_full() -> None:
    lengths = np.clip(np.random.default_rng(6).lognormal(4.5, 0.9, 60_000), 5, 512).astype(int)
    windows = list(pack_windows(lengths, 8192, seed=0, epoch=0))
    batches = [batch for window in windows for batch in window]
    assert sorted(np.concatenate(batches).tolist()) == list(range(len(lengths)))
    used = sum(int(lengths[batch].sum()) for batch in batches)
    assert max(int(lengths[batch].sum()) for batch in batches) <= 8192
    # The epoch's last window is not as long as the others.
    full = [batch for window in windows[:-1] for batch in window]
    assert sum(int(lengths[b].sum()) for b in full) >= 0.995 * 8192 * len(full)
    assert used == int(lengths.sum())
    again = list(pack_windows(lengths, 8192, seed=0, epoch=0, first_window=2))
    for found, expected in zip(again, windows[2:], strict=True):
        assert [b.tolist() for b in found] == [b.tolist() for b in expected]


def test_long_and_short_sequences_come_at_any_time() -> None:
    lengths = np.random.default_rng(7).integers(5, 500, 3000)
    (window,) = pack_windows(lengths[:2000], 8192, seed=0, epoch=0)
    longest = [int(lengths[batch].max()) for batch in window]
    places = np.arange(len(longest))
    assert abs(float(np.corrcoef(places, longest)[0, 1])) < 4 / np.sqrt(len(longest))


def test_orders_differ_by_seed_and_epoch_alone() -> None:
    languages = np.zeros(1000, np.int64)
    orders = {
        tuple(epoch_order(languages, seed=seed, epoch=epoch).tolist())
        for seed in (0, 1)
        for epoch in (0, 1)
    }
    assert len(orders) == 4
    assert all(sorted(order) == list(range(1000)) for order in orders)
    assert tuple(epoch_order(languages, seed=1, epoch=1).tolist()) in orders


def test_languages_come_by_alpha() -> None:
    counts = np.array([9000, 900, 0, 100])
    raised = (counts / counts.sum()) ** 0.3
    expected = np.where(counts > 0, raised, 0) / raised[counts > 0].sum()
    assert language_shares(counts, 0.3) == pytest.approx(expected)
    assert language_shares(counts, 1.0) == pytest.approx(counts / counts.sum())
    assert language_shares(counts, 0.0) == pytest.approx(np.array([1, 1, 0, 1]) / 3)
    languages = np.repeat(np.arange(4), counts)
    order = epoch_order(languages, seed=0, epoch=0, alpha=0.3)
    assert len(order) == len(languages)
    found = np.bincount(languages[order], minlength=4)
    assert np.abs(found - expected * len(order)).max() < 1
    # Of a language each sequence comes as often as the others, or once more.
    times = np.bincount(order, minlength=len(languages))
    for language in (0, 1, 3):
        of_language = times[languages == language]
        assert of_language.max() - of_language.min() <= 1
    with pytest.raises(ConfigError, match="alpha must lie between 0 and 1"):
        language_shares(counts, 1.5)


def test_a_sequence_used_twice_is_two_to_the_objective(samples: Samples) -> None:
    loader = Loader(samples=samples, batch_tokens=2000, seed=8, alpha=0.0)
    numbers: list[int] = []
    for batch, position in loader.batches():
        if position.epoch:
            break
        numbers += batch.numbers.tolist()
    assert sorted(numbers) == list(range(len(samples)))


def test_what_cannot_be_is_refused(samples: Samples) -> None:
    with pytest.raises(ConfigError, match="a sequence has 40 tokens, a batch takes 39"):
        Loader(samples=samples, batch_tokens=39, seed=0)
    with pytest.raises(ConfigError, match="a batch takes 3"):
        list(pack_windows(np.array([4]), 3, seed=0, epoch=0))
    assert Position() == Position(epoch=0, window=0, batch=0)
