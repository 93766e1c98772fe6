"""Noises have their published statistics, and inputs and targets restore the text.

Everything random here follows from fixed seeds; a distribution is held to what is expected by a
chi-square test, at a level that a right one fails once in a thousand seeds.
"""

from __future__ import annotations

from collections import Counter
from itertools import pairwise, permutations, product
from typing import Any

import numpy as np
import pytest
from scipy.stats import binomtest, chisquare, poisson

from encoder_engine.data.noising import bart, inverse_cloze
from encoder_engine.data.noising.bart import RowKey
from encoder_engine.data.noising.kinds import NOISE_KINDS
from encoder_engine.data.noising.noise import Noise
from encoder_engine.data.noising.passages import cut_passages
from encoder_engine.data.noising.span_corruption import Noised, SpanCorruption, restore_spans
from encoder_engine.errors import BatchError, ConfigError

LEVEL = 1e-3
SENTINELS = [f"<extra_id_{number}>" for number in range(100)]
MASK = -1


def numbers(length: int) -> list[int]:
    return list(range(length))


def test_the_example_of_t5_is_restored() -> None:
    text = ["Thank", "you", "for", "inviting", "me", "to", "your", "party", "last", "week", "."]
    noised = Noised(
        inputs=[
            "Thank",
            "you",
            "<extra_id_0>",
            "me",
            "to",
            "your",
            "party",
            "<extra_id_1>",
            "week",
            ".",
        ],
        targets=["<extra_id_0>", "for", "inviting", "<extra_id_1>", "last", "<extra_id_2>"],
    )
    assert restore_spans(noised, SENTINELS) == text
    corrupt = SpanCorruption(sentinels=SENTINELS, share=3 / 11, mean_length=1.5)
    drawn = {tuple(corrupt(text, seed=0, index=row).targets) for row in range(2000)}
    assert tuple(noised.targets) in drawn


@pytest.mark.parametrize("length", [1, 2, 3, 7, 60, 512])
@pytest.mark.parametrize(("share", "mean_length"), [(0.15, 3.0), (0.5, 3.0), (0.8, 2.0)])
def test_spans_and_input_restore_the_text(length: int, share: float, mean_length: float) -> None:
    words = [f"w{number}" for number in range(length)]
    sentinels = [f"<extra_id_{number}>" for number in range(length + 1)]
    corrupt = SpanCorruption(sentinels=sentinels, share=share, mean_length=mean_length)
    for index in range(20):
        noised = corrupt(words, seed=1, index=index)
        assert restore_spans(noised, sentinels) == words
        marks = [place for place, token in enumerate(noised.inputs) if token in sentinels]
        # Two spans are never adjacent, and share and number of spans are exact.
        assert all(after > before + 1 for before, after in pairwise(marks))
        num_noise = min(max(round(share * length), 1), length - 1)
        assert length - (len(noised.inputs) - len(marks)) == num_noise
        if num_noise:
            most = min(num_noise, length - num_noise + 1)
            assert len(marks) == min(max(round(num_noise / mean_length), 1), most)


def spans_of(noised: Noised[str]) -> tuple[tuple[int, int], ...]:
    """Return place in the text and length of each span."""
    found, place, lengths = [], 0, iter(span_lengths(noised))
    for token in noised.inputs:
        length = next(lengths) if token in SENTINELS else 1
        if token in SENTINELS:
            found.append((place, length))
        place += length
    return tuple(found)


def span_lengths(noised: Noised[str]) -> list[int]:
    marks = [place for place, token in enumerate(noised.targets) if token in SENTINELS]
    return [after - before - 1 for before, after in pairwise(marks)]


def test_all_spans_of_a_text_are_equally_probable() -> None:
    words = [f"w{number}" for number in range(8)]
    corrupt = SpanCorruption(sentinels=SENTINELS, share=4 / 8, mean_length=2.0)
    found = Counter(spans_of(corrupt(words, seed=0, index=row)) for row in range(12_000))
    # 4 tokens in 2 spans, 4 kept: 3 ways to cut, and 5 choose 2 places.
    expected = {
        ((first, length), (second, 4 - length))
        for length, first, second in product((1, 2, 3), range(8), range(8))
        if second > first + length and second + 4 - length <= 8
    }
    assert set(found) == expected
    assert len(expected) == 3 * 10
    assert chisquare(list(found.values())).pvalue > LEVEL


def test_a_row_beyond_the_sentinels_and_a_sentinel_in_a_text_are_refused() -> None:
    corrupt = SpanCorruption(sentinels=SENTINELS[:3])
    corrupt(["w"] * 40, seed=0)
    with pytest.raises(BatchError, match="needs 4 sentinels, got 3") as caught:
        corrupt(["w"] * 60, seed=0, index=5)
    assert caught.value.row == 5
    with pytest.raises(BatchError, match="holds the sentinel '<extra_id_0>'"):
        corrupt(["a", "<extra_id_0>"], seed=0)
    with pytest.raises(BatchError, match="same order"):
        restore_spans(Noised(inputs=SENTINELS[:1], targets=SENTINELS[1:3]), SENTINELS)
    one, two = SENTINELS[:2]
    for inputs, targets in (
        # Tokens of the target were lost.
        ([one], ["lost", one, "a", two]),
        ([one, one], [one, "lost", one, "a", two]),
    ):
        with pytest.raises(BatchError, match="each once, the first at the beginning"):
            restore_spans(Noised(inputs=inputs, targets=targets), SENTINELS)
    for bad in ({"share": 1.0}, {"mean_length": 0.5}, {"sentinels": ["a", "a"]}):
        with pytest.raises(ConfigError):
            SpanCorruption(**{"sentinels": SENTINELS, **bad})  # type: ignore[arg-type]


def test_masked_and_deleted_shares_are_those_requested() -> None:
    tokens = numbers(200_000)
    masked = bart.mask_tokens(tokens, MASK, RowKey(1), share=0.3)
    kept = [place for place, token in enumerate(masked) if token != MASK]
    assert [masked[place] for place in kept] == kept
    assert binomtest(masked.count(MASK), len(tokens), 0.3).pvalue > LEVEL
    deleted = bart.delete_tokens(tokens, RowKey(1), share=0.3)
    assert binomtest(len(tokens) - len(deleted), len(tokens), 0.3).pvalue > LEVEL
    assert deleted == sorted(deleted)
    # The two are drawn apart.
    both = len(set(kept) & set(deleted))
    assert binomtest(both, len(tokens), 0.49).pvalue > LEVEL


def infilled_lengths(tokens: list[int], noised: list[int]) -> list[int]:
    """Return the lengths of spans, of which no two are adjacent in the cases kept."""
    lengths, place = [], 0
    for number, token in enumerate(noised):
        if token != MASK:
            place = token + 1
            continue
        following = noised[number + 1] if number + 1 < len(noised) else len(tokens)
        lengths.append(-1 if following == MASK else following - place)
    return lengths


def test_infilled_spans_are_of_poisson_lengths_with_zero_and_spend_the_share() -> None:
    tokens = numbers(20_000)
    lengths: list[int] = []
    num_spans, num_adjacent = 0, 0.0
    # No span of all rows is longer, at the level.
    longest = poisson.isf(LEVEL / (10 * len(tokens) * 0.03), 3.0)
    # At a small share nearly no two spans are adjacent: those that are would need parsing.
    for index in range(10):
        noised = bart.infill_text(tokens, MASK, RowKey(3, 0, index), share=0.03)
        kept = [token for token in noised if token != MASK]
        assert kept == sorted(kept)
        # Beyond one span nothing is left to chance.
        assert abs(len(tokens) - len(kept) - 0.03 * len(tokens)) <= longest
        marks = len(noised) - len(kept)
        num_spans += marks
        # Of all arrangements of spans and kept tokens: each place after a span is as often a span.
        num_adjacent += marks * (marks - 1) / len(noised)
        lengths += infilled_lengths(tokens, noised)
    assert binomtest(lengths.count(-1), num_spans, num_adjacent / num_spans).pvalue > LEVEL
    found = Counter(length for length in lengths if length >= 0)
    counts = [found[length] for length in range(8)]
    counts.append(sum(n for length, n in found.items() if length > 7))
    shares = [*(poisson.pmf(length, 3.0) for length in range(8)), poisson.sf(7, 3.0)]
    assert found[0] > 0
    assert chisquare(counts, np.array(shares) * sum(counts)).pvalue > LEVEL


def test_every_place_of_an_infilled_span_is_equally_probable() -> None:
    # One span of length 0: 5 places among 4 tokens.
    found: Counter[int] = Counter()
    for row in range(20_000):
        noised = bart.infill_text(numbers(4), MASK, RowKey(0, 0, row), share=0.1, mean_length=0.5)
        if noised.count(MASK) == 1 and len(noised) == 5:
            found[noised.index(MASK)] += 1
    assert set(found) == set(range(5))
    assert chisquare(list(found.values())).pvalue > LEVEL


@pytest.mark.parametrize("mean_length", [0.0, 1e-9, float("nan"), float("inf")])
def test_spans_that_would_never_fill_their_share_are_refused(mean_length: float) -> None:
    with pytest.raises(ConfigError, match="mean_length must be a number of at least"):
        bart.infill_text(numbers(4), MASK, RowKey(0), mean_length=mean_length)


def test_orders_and_rotations_are_equally_probable_and_lose_nothing() -> None:
    sentences = [[0], [1, 2], [3, 4, 5]]
    orders: Counter[tuple[int, ...]] = Counter()
    starts: Counter[int] = Counter()
    for row in range(6000):
        permuted = bart.permute_sentences(sentences, RowKey(0, 0, row))
        orders[tuple(sentence[0] for sentence in permuted)] += 1
        rotated = bart.rotate_document(numbers(7), RowKey(0, 0, row))
        place = rotated.index(0)
        assert rotated[place:] + rotated[:place] == numbers(7)
        starts[rotated[0]] += 1
    assert set(orders) == set(permutations((0, 1, 3)))
    assert set(starts) == set(range(7))
    assert chisquare(list(orders.values())).pvalue > LEVEL
    assert chisquare(list(starts.values())).pvalue > LEVEL
    assert bart.rotate_document([], RowKey(0)) == []


@pytest.mark.parametrize("kind", NOISE_KINDS)
def test_a_row_is_a_function_of_seed_epoch_and_index(kind: Any) -> None:
    noise: Noise[int] = Noise(kinds=(kind,), mask=MASK, sentinels=[*range(-100, -1)])
    passage = [numbers(600)[start : start + 10] for start in range(0, 600, 10)]
    drawn = [noise(passage, RowKey(seed, e, i)) for seed, e, i in product((0, 1), (0, 1), (0, 1))]
    assert noise(passage, RowKey(1, 0, 1)) == drawn[5]
    # A list named no noise at all: it is not equal to a tuple.
    listed: Noise[int] = Noise(kinds=[kind], mask=MASK, sentinels=[*range(-100, -1)])
    assert listed(passage, RowKey(1, 0, 1)) == drawn[5]
    assert len({tuple(noised.inputs) for noised in drawn}) == 8
    if kind != "span-corruption":
        assert all(noised.targets == numbers(600) for noised in drawn)


def test_noises_of_bart_go_together_and_span_corruption_does_not() -> None:
    passage = [numbers(30)[start : start + 10] for start in range(0, 30, 10)]
    noise: Noise[int] = Noise(kinds=("text-infilling", "sentence-permutation"), mask=MASK)
    noised = noise(passage, RowKey(4))
    # Infilling comes after the permutation, by draws of its own.
    permuted = [token for s in bart.permute_sentences(passage, RowKey(4)) for token in s]
    assert noised.inputs == bart.infill_text(permuted, MASK, RowKey(4))
    for kinds in ((), ("nothing",), ("span-corruption", "token-masking"), ("token-masking",) * 2):
        with pytest.raises(ConfigError):
            Noise(kinds=kinds, mask=MASK)  # type: ignore[arg-type]


def test_a_sentence_and_its_context_are_drawn_as_orqa_does() -> None:
    queries: Counter[int] = Counter()
    num_kept = 0
    for index in range(20_000):
        pair = inverse_cloze.inverse_cloze(numbers(5), RowKey(2, 0, index))
        assert pair is not None
        queries[pair.query] += 1
        num_kept += pair.query in pair.document
        others = [place for place in range(5) if place != pair.query]
        assert pair.document in (numbers(5), others)
    assert chisquare([queries[place] for place in range(5)]).pvalue > LEVEL
    assert binomtest(num_kept, 20_000, 0.1).pvalue > LEVEL
    assert inverse_cloze.inverse_cloze([0], RowKey(0)) is None
    with pytest.raises(ConfigError, match="keep"):
        inverse_cloze.inverse_cloze(numbers(2), RowKey(0), keep=1.5)


def test_passages_hold_whole_sentences_and_every_token() -> None:
    sentences = [numbers(length) for length in (3, 4, 0, 9, 1, 2)]
    found = list(cut_passages(sentences, 8))
    assert [[len(sentence) for sentence in passage] for passage in found] == [
        [3, 4],
        [8],
        [1, 1, 2],
    ]
    assert list(cut_passages([[]], 8)) == []
