"""Tokens are chosen at the rate, in whole words and spans, and replaced in the shares asked for.

Everything random here follows from fixed seeds; a distribution is held to what is expected by a
chi-square test, at a level that a right one fails once in a thousand seeds.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from scipy.stats import binomtest, chisquare, norm

from encoder_engine.errors import BatchError, ConfigError
from encoder_engine.objectives.masking import MaskedTokens, Masking, span_length
from encoder_engine.packing.clean import CleanBatch
from encoder_engine.packing.draws import token_draws
from tests.objectives.batches import MASK, VOCAB, draw_batch, take_sequences

LEVEL = 1e-3
UNITS = ("token", "word", "span")


def masking(**options: Any) -> Masking:
    return Masking(**{"mask_id": MASK, "vocab_size": VOCAB, **options})


def as_sequences(batch: CleanBatch, masked: MaskedTokens) -> dict[int, list[int]]:
    """Return what the model sees of each sequence, by its number."""
    parts = np.split(masked.input_ids, batch.cu_seqlens[1:-1])
    return {int(n): part.tolist() for n, part in zip(batch.numbers, parts, strict=True)}


@pytest.mark.parametrize("unit", UNITS)
def test_the_share_that_is_chosen_and_what_becomes_of_it(unit: Any) -> None:
    batch = draw_batch(6000, 400)
    masked = masking(unit=unit)(batch, seed=1)
    num_free, num_chosen = int((~batch.special).sum()), len(masked.rows)
    assert num_free > 10**6
    # Words are chosen as wholes; of spans only each sequence's last is left to chance.
    sizes = np.bincount(np.cumsum(batch.word_starts) - 1, weights=~batch.special)
    variance = {"token": 0.15 * 0.85 * num_free, "word": 0.15 * 0.85 * float((sizes**2).sum())}
    if masked.spans is not None:
        variance["span"] = len(batch.numbers) * (masked.spans[:, 1].max() / 2) ** 2
    assert norm.sf(abs(num_chosen - 0.15 * num_free) / np.sqrt(variance[unit])) > LEVEL / 2
    seen = masked.input_ids[masked.rows]
    kept, hidden = int((seen == masked.labels).sum()), int((seen == MASK).sum())
    # One random token in VOCAB is the one that was there.
    expected = np.array([0.8 + 0.1 / VOCAB, 0.1 * (1 - 2 / VOCAB), 0.1 + 0.1 / VOCAB])
    found = np.array([hidden, num_chosen - hidden - kept, kept])
    if unit != "span":
        assert chisquare(found, expected * num_chosen).pvalue > LEVEL
    else:
        assert masked.spans is not None
        first = seen[np.isin(masked.rows, masked.spans[:, 0])]
        hidden = int((first == MASK).sum())
        assert binomtest(hidden, len(first), float(expected[0])).pvalue > LEVEL


def spans_of(masked: MaskedTokens) -> Any:
    assert masked.spans is not None
    return masked.spans


def with_salient(batch: CleanBatch, share: float) -> CleanBatch:
    """Mark that share of the words as salient spans, each of them of one or two words."""
    generator = np.random.default_rng(8)
    words = np.cumsum(batch.word_starts) - 1
    chosen = (generator.random(words[-1] + 1) < share)[words] & ~batch.special
    marks = np.where(chosen, np.where(batch.word_starts, 1, 2), 0).astype(np.uint8)
    joined = (generator.random(len(marks)) < 0.5) & (marks == 1)
    joined[1:] &= marks[:-1] > 0
    joined[0] = False
    return replace(batch, salient=np.where(joined, 2, marks).astype(np.uint8))


def test_salient_spans_come_first_each_equally_probable_and_other_spans_fill_the_share() -> None:
    # Every sequence has the words 1 2 3 4 5 6 7 8, of which 2, 4-5 and 8 are salient.
    marks = np.array([0, 0, 1, 0, 1, 2, 0, 0, 1, 0], np.uint8)
    special = np.zeros(10, np.bool_)
    special[[0, 9]] = True
    number = 12_000
    batch = CleanBatch(
        input_ids=np.tile(np.arange(10, 20, dtype=np.int32), number),
        cu_seqlens=np.arange(0, 10 * number + 1, 10, dtype=np.int32),
        numbers=np.arange(number),
        special=np.tile(special, number),
        word_starts=np.ones(10 * number, np.bool_),
        salient=np.tile(marks, number),
    )
    options = {"unit": "salient", "success": 1.0}
    masked = masking(mask_probability=1 / 8, **options)(batch, seed=1)
    found = Counter((int(row) % 10, int(length)) for row, length in spans_of(masked))
    # A span of two words is kept half the time where one word is to be masked.
    assert set(found) == {(2, 1), (4, 2), (8, 1)}
    counts = [found[2, 1], found[8, 1], found[4, 2], number - sum(found.values())]
    assert chisquare(counts, number * np.array([2, 2, 1, 1]) / 6).pvalue > LEVEL
    # With more to mask than is marked, all that is marked is masked, and other words with it.
    masked = masking(mask_probability=6 / 8, **options)(batch, seed=1)
    rows = masked.rows.reshape(number, 6) % 10
    assert (np.sort(rows, axis=1)[:, :, None] == np.array([2, 4, 5, 8])).any(1).all()
    others = rows[~np.isin(rows, [2, 4, 5, 8])]
    assert len(others) == 2 * number
    assert chisquare(np.bincount(others, minlength=8)[[1, 3, 6, 7]]).pvalue > LEVEL


def test_salient_spans_are_made_whole_words_and_never_overlap() -> None:
    batch = with_salient(draw_batch(300, 60), 0.3)
    masked = masking(unit="salient", mask_probability=0.4)(batch, seed=2)
    assert masked.spans is not None
    ends = masked.spans.sum(1)
    assert (masked.spans[1:, 0] >= ends[:-1]).all()
    assert batch.word_starts[masked.spans[:, 0]].all()
    assert not batch.special[masked.rows].any()
    whole = as_sequences(batch, masked)
    part = replace(take_sequences(batch, [7, 3]), salient=None)
    with pytest.raises(BatchError, match="no salient spans"):
        masking(unit="salient")(part, seed=2)
    begins, offsets = batch.cu_seqlens, batch.salient
    assert offsets is not None
    own = np.concatenate([offsets[begins[n] : begins[n + 1]] for n in (7, 3)])
    found = masking(unit="salient", mask_probability=0.4)(replace(part, salient=own), seed=2)
    assert as_sequences(part, found) == {number: whole[number] for number in (7, 3)}


@pytest.mark.parametrize("unit", UNITS)
def test_nothing_else_changes_and_no_special_token_is_chosen(unit: Any) -> None:
    batch = draw_batch(500, 60)
    masked = masking(unit=unit, mask_probability=0.4)(batch, seed=2)
    assert not batch.special[masked.rows].any()
    assert (np.diff(masked.rows) > 0).all()
    assert (masked.labels == batch.input_ids[masked.rows]).all()
    others = np.ones(len(batch.input_ids), np.bool_)
    others[masked.rows] = False
    assert (masked.input_ids[others] == batch.input_ids[others]).all()


@pytest.mark.parametrize("unit", UNITS)
def test_a_sequence_is_masked_alike_in_every_batch(unit: Any) -> None:
    batch = draw_batch(40, 50, first_number=1000)
    whole = as_sequences(batch, masking(unit=unit)(batch, seed=3))
    for order in ([7], [39, 0, 3], list(range(39, -1, -1))):
        part = take_sequences(batch, order)
        found = as_sequences(part, masking(unit=unit)(part, seed=3))
        assert found == {number: whole[number] for number in found}


@pytest.mark.parametrize("unit", UNITS)
def test_another_seed_epoch_or_number_masks_anew(unit: Any) -> None:
    plain = draw_batch(50, 60)
    once = masking(unit=unit)(plain, seed=4).rows.tolist()
    assert masking(unit=unit)(plain, seed=5).rows.tolist() != once
    later, elsewhere = draw_batch(50, 60, epoch=1), draw_batch(50, 60, first_number=50)
    assert (later.input_ids == plain.input_ids).all()
    assert masking(unit=unit)(later, seed=4).rows.tolist() != once
    assert masking(unit=unit)(elsewhere, seed=4).rows.tolist() != once


@pytest.mark.parametrize("unit", ["word", "span"])
def test_words_are_chosen_whole(unit: Any) -> None:
    batch = draw_batch(300, 60)
    chosen = np.zeros(len(batch.input_ids), np.bool_)
    chosen[masking(unit=unit, mask_probability=0.3)(batch, seed=6).rows] = True
    words = np.cumsum(batch.word_starts) - 1
    shares = np.bincount(words, weights=chosen) / np.bincount(words)
    assert set(np.unique(shares)) == {0.0, 1.0}


def test_spans_are_runs_that_share_their_fate() -> None:
    batch = draw_batch(400, 200)
    masked = masking(unit="span", mask_share=0.5, random_share=0.0)(batch, seed=7)
    assert masked.spans is not None
    starts, lengths = masked.spans.T
    assert (starts[1:] >= starts[:-1] + lengths[:-1]).all()
    rows = [row for start, n in masked.spans.tolist() for row in range(start, start + n)]
    assert masked.rows.tolist() == rows
    fates = [set(masked.input_ids[s : s + n] == MASK) for s, n in masked.spans.tolist()]
    assert {tuple(fate) for fate in fates} == {(True,), (False,)}
    # A token of each side is left to predict the span from.
    assert not batch.special[starts].any()
    ends = starts + lengths
    assert (batch.sequence_ids[starts - 1] == batch.sequence_ids[ends]).all()


def test_the_words_of_a_span_are_geometric() -> None:
    draws = np.random.default_rng(8).random(10**6)
    found = np.bincount([span_length(draw, 0.2, 10) for draw in draws.tolist()], minlength=11)[1:]
    expected = 0.2 * 0.8 ** np.arange(10)
    expected *= len(draws) / expected.sum()
    assert chisquare(found, expected).pvalue > LEVEL
    assert (found * np.arange(1, 11)).sum() / len(draws) == pytest.approx(3.797, abs=0.01)
    assert {span_length(draw, 1.0, 10) for draw in (0.0, 0.5, 0.999)} == {1}
    assert {span_length(draw, 0.2, 1) for draw in (0.0, 0.5, 0.999)} == {1}


def test_every_place_is_chosen_as_often() -> None:
    batch = draw_batch(1, 60)
    length = len(batch.input_ids)
    many = take_sequences(batch, [0] * 20_000)
    many = CleanBatch(**{**vars(many), "numbers": np.arange(20_000, dtype=np.int64)})
    places = many.positions[masking()(many, seed=9).rows]
    found = np.bincount(places, minlength=length)[1:-1]
    assert chisquare(found).pvalue > LEVEL


def test_other_tokens_come_from_the_whole_vocabulary_or_by_their_counts() -> None:
    batch = draw_batch(2000, 400)
    shares: dict[str, Any] = {"mask_share": 0.0, "random_share": 1.0}
    masked = masking(**shares)(batch, seed=10)
    found = np.bincount(masked.input_ids[masked.rows], minlength=VOCAB)
    assert chisquare(found).pvalue > LEVEL
    counts = np.random.default_rng(0).integers(0, 30, VOCAB)
    masked = masking(**shares, token_counts=tuple(counts.tolist()))(batch, seed=10)
    found = np.bincount(masked.input_ids[masked.rows], minlength=VOCAB)
    assert not found[counts == 0].any()
    expected = counts / counts.sum() * found.sum()
    assert chisquare(found[counts > 0], expected[counts > 0]).pvalue > LEVEL


def test_draws_are_even_and_do_not_follow_each_other() -> None:
    batch = draw_batch(4000, 500)
    draws = token_draws(batch, 11, "choose")
    assert len(draws) > 10**6
    assert chisquare(np.bincount((draws * 64).astype(int), minlength=64)).pvalue > LEVEL
    pairs = (draws[:-1] * 16).astype(int) * 16 + (draws[1:] * 16).astype(int)
    assert chisquare(np.bincount(pairs[::2], minlength=256)).pvalue > LEVEL
    other = token_draws(batch, 11, "replace")
    across = (draws * 16).astype(int) * 16 + (other * 16).astype(int)
    assert chisquare(np.bincount(across, minlength=256)).pvalue > LEVEL


@pytest.mark.parametrize("unit", UNITS)
def test_sequences_of_nothing_and_of_one_token(unit: Any) -> None:
    special = np.array([True, True, True, False, True])
    batch = CleanBatch(
        input_ids=np.array([1, 2, 1, 50, 2], np.int32),
        cu_seqlens=np.array([0, 0, 2, 5], np.int32),
        numbers=np.arange(3),
        special=special,
        word_starts=np.ones(5, np.bool_),
    )
    rows = {
        tuple(masking(unit=unit, mask_probability=0.5)(batch, seed=seed).rows) for seed in range(20)
    }
    assert rows == {(), (3,)}


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"mask_probability": 0.0}, "mask_probability must lie between 0 and 1, got 0.0"),
        ({"mask_probability": 1.5}, "mask_probability must lie between 0 and 1, got 1.5"),
        ({"unit": "page"}, "unit must be one of 'token', .*, got 'page'"),
        ({"mask_share": 0.8, "random_share": 0.3}, "at most 1 together, got 0.8 and 0.3"),
        ({"mask_share": -0.1}, "at least 0"),
        # No token was replaced, and the model saw what it had to predict.
        ({"mask_share": np.nan}, "at least 0"),
        ({"random_share": np.nan}, "at least 0"),
        ({"mask_id": VOCAB}, f"mask_id is {VOCAB}, the vocabulary has {VOCAB} tokens"),
        ({"success": 0.0}, "success must be above 0"),
        ({"longest": 0}, "longest at least 1"),
        ({"token_counts": (1, 2)}, f"token_counts must be {VOCAB} numbers of at least 0, got 2"),
        ({"token_counts": (0,) * VOCAB}, "all 0"),
    ],
)
def test_what_makes_no_sense_is_refused(options: dict[str, Any], told: str) -> None:
    with pytest.raises(ConfigError, match=told):
        masking(**options)


def test_arrays_that_do_not_fit_are_refused() -> None:
    good = vars(draw_batch(3, 5))
    for name, wrong in (
        ("input_ids", good["input_ids"].astype(np.int64)),
        ("special", good["special"][1:]),
        ("numbers", good["numbers"][:2]),
        ("token_type_ids", np.zeros(1, np.int32)),
    ):
        with pytest.raises(BatchError, match=f"{name} must be "):
            CleanBatch(**{**good, name: wrong})
    with pytest.raises(BatchError, match="never fall"):
        CleanBatch(**{**good, "cu_seqlens": good["cu_seqlens"][::-1].copy()})
    within = good["word_starts"].copy()
    within[good["cu_seqlens"][1]] = False
    with pytest.raises(BatchError, match="sequence 1 begins within a word"):
        CleanBatch(**{**good, "word_starts": within})
    # Empty sequences were not counted.
    offsets = np.concatenate([np.zeros(1, np.int32), good["cu_seqlens"]])
    changes = {"cu_seqlens": offsets, "numbers": np.arange(len(offsets) - 1)}
    with pytest.raises(BatchError, match="sequence 2 begins within a word") as caught:
        CleanBatch(**{**good, **changes, "word_starts": within})
    assert caught.value.row == 2
