"""Duplicates: as by a naive double loop, planted ones found, and independent of windows.

Everything random here follows from fixed seeds; a share is held to what is expected at a level that
a right one fails once in a thousand seeds.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from scipy.stats import binomtest

from encoder_engine.data.hygiene import minhash
from encoder_engine.data.hygiene.minhash import NearDuplicates, choose_bands, signatures
from encoder_engine.data.hygiene.semantic import SemanticDuplicates
from encoder_engine.data.hygiene.shingles import Shingles, jaccard, normal_digest, normal_form
from encoder_engine.errors import InputError

WORDS = [f"w{n}" for n in range(400)]
LEVEL = 1e-3


def compared(index: Any, texts: Any, first: int = 0) -> list[int | None]:
    """Return for each text, or vector, the kept one that it is near; keep those near none."""
    index.start(texts)
    rows = []
    for number in range(len(texts)):
        rows.append(index.find(number))
        if rows[-1] is None:
            index.keep(number, first + number)
    return rows


def planted(num_texts: int, seed: int) -> tuple[list[str], dict[int, int]]:
    """Return texts, half of them edited copies of earlier ones, and the original of each copy."""
    generator = np.random.default_rng(seed)
    texts: list[list[str]] = []
    originals = {}
    for row in range(num_texts):
        if row % 2 and row > 20:
            originals[row] = int(generator.integers(row // 2)) * 2
            words = list(texts[originals[row]])
            for _ in range(int(generator.integers(0, 4))):
                words[int(generator.integers(len(words)))] = str(generator.choice(WORDS))
        else:
            words = generator.choice(WORDS, size=int(generator.integers(30, 120))).tolist()
        texts.append(words)
    return [" ".join(words) for words in texts], originals


def by_double_loop(texts: list[str], threshold: float) -> list[int | None]:
    """Compare every text with every kept one, by sets of strings."""
    kept: list[tuple[int, set[tuple[str, ...]]]] = []
    found: list[int | None] = []
    for row, text in enumerate(texts):
        words = text.casefold().split()
        shingles = {tuple(words[n : n + 5]) for n in range(max(1, len(words) - 4))}
        near = (
            other
            for other, theirs in kept
            if len(shingles & theirs) / len(shingles | theirs) >= threshold
        )
        original = next(near, None)
        found.append(original)
        if original is None:
            kept.append((row, shingles))
    return found


@pytest.mark.parametrize("threshold", [0.5, 0.8, 1.0])
def test_near_duplicates_are_those_of_a_double_loop(
    threshold: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    # With bands of one number, a pair at 0.5 is missed once in 2^128.
    monkeypatch.setattr(minhash, "choose_bands", lambda _: minhash.Bands(128, 1))
    texts, originals = planted(300, seed=0)
    expected = by_double_loop(texts, threshold)
    assert compared(NearDuplicates(threshold), texts) == expected
    assert 0 < sum(one is not None for one in expected) <= len(originals)


@pytest.mark.parametrize("threshold", [0.5, 0.8, 1.0])
def test_planted_copies_are_found_as_often_as_the_bands_promise(threshold: float) -> None:
    texts, originals = planted(300, seed=0)
    shingles = Shingles(5)
    found = []
    for copy, original in originals.items():
        pair = [texts[original], texts[copy]]
        # Other hash functions for each pair: their outcomes are independent.
        (_, near) = compared(NearDuplicates(threshold, seed=copy), pair)
        if jaccard(*map(shingles.of, pair)) >= threshold:
            found.append(near == 0)
        else:
            # Shingles decide, not signatures.
            assert near is None
    assert len(found) > 30
    assert binomtest(sum(found), len(found), 0.95, alternative="less").pvalue > LEVEL


def test_the_result_does_not_depend_on_windows() -> None:
    texts, _ = planted(120, seed=1)
    whole, cut = NearDuplicates(0.6), NearDuplicates(0.6)
    expected = compared(whole, texts)
    assert [one for n in range(0, 120, 7) for one in compared(cut, texts[n : n + 7], n)] == expected
    vectors = np.random.default_rng(0).normal(size=(120, 3))
    first, second = SemanticDuplicates(0.98), SemanticDuplicates(0.98)
    parts = [one for n in range(0, 120, 7) for one in compared(second, vectors[n : n + 7], n)]
    assert compared(first, vectors) == parts


def test_exact_copies_are_found_whatever_their_length() -> None:
    texts = ["one", "two words", "One.", "", "...", "", "\u65e5\u672c\u8a9e", "\u65e5\u672c\u8a9e"]
    assert compared(NearDuplicates(0.8), texts) == [None, None, 0, None, None, None, None, 6]


def test_signatures_estimate_the_jaccard_similarity() -> None:
    generator = np.random.default_rng(0)
    base = generator.integers(0, 2**63, 400, dtype=np.uint64)
    one, other = np.unique(base[:300]), np.unique(base[100:])
    factors = generator.integers(0, 2**64, 1024, dtype=np.uint64) | np.uint64(1)
    terms = generator.integers(0, 2**64, 1024, dtype=np.uint64)
    signed = signatures([one, other], factors, terms)
    naive = [
        min(int(f) * int(x) + int(t) & (2**64 - 1) for x in one) >> 32
        for f, t in zip(factors[:8], terms[:8], strict=True)
    ]
    assert signed[0, :8].tolist() == naive
    share = float((signed[0] == signed[1]).mean())
    # 200 of 400: a binomial share, within four standard deviations.
    assert abs(share - 0.5) < 4 * 0.5 / np.sqrt(1024)


def test_bands_miss_at_most_five_percent_at_the_threshold() -> None:
    for threshold in (0.3, 0.5, 0.8, 0.95, 1.0):
        bands = choose_bands(threshold)
        assert bands.number * bands.rows <= 128
        assert bands.found_share(threshold) >= 0.95
    for bad in (0.0, 1.1):
        with pytest.raises(InputError, match="above 0 and up to 1"):
            choose_bands(bad)


def test_semantic_duplicates_are_those_of_a_double_loop() -> None:
    vectors = np.random.default_rng(3).normal(size=(200, 4))
    vectors[17] = 0.0
    kept: list[int] = []
    expected: list[int | None] = []
    for row, vector in enumerate(vectors):
        norms = np.linalg.norm(vectors[kept], axis=1) * np.linalg.norm(vector)
        cosines = vectors[kept] @ vector / np.where(norms > 0, norms, 1.0)
        if len(kept) and cosines.max() >= 0.95:
            expected.append(kept[int(cosines.argmax())])
        else:
            expected.append(None)
            kept.append(row)
    assert compared(SemanticDuplicates(0.95), vectors) == expected
    assert expected.count(None) < 200
    with pytest.raises(InputError, match="cosine"):
        SemanticDuplicates(0.0)


def test_normal_forms_share_case_width_and_space() -> None:
    assert normal_form(" \uff26ull\u3000 WIDTH\n") == "full width"
    assert normal_digest("A  b") == normal_digest("a b")
    assert normal_digest("a b") != normal_digest("ab")
