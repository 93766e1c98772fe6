"""Counting, sampling and cutting of what a vocabulary is trained on."""

from __future__ import annotations

import itertools
from collections import Counter
from typing import TYPE_CHECKING

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from encoder_engine.errors import InputError, TextError
from encoder_engine.text.training.corpora import Lines, allot, count_texts, open_corpora, sample

if TYPE_CHECKING:
    from collections.abc import Mapping

    from encoder_engine.text.training.corpora import Stage


def ignore(_stage: Stage, _done: int) -> None:
    pass


def read(
    corpora: Mapping[str, list[str]], *, alpha: float = 0.3, limit: int | None = None, seed: int = 0
) -> list[str]:
    """Count and sample."""
    counts = count_texts(corpora, lambda _text: None, ignore)
    drawn = sample(corpora, counts, alpha=alpha, limit=limit, seed=seed, watch=ignore)
    texts = list(drawn)
    assert Counter({name: c.num_read for name, c in counts.items()}) == drawn.targets
    return texts


@settings(deadline=None)
@given(
    st.dictionaries(st.text(max_size=3), st.integers(1, 10_000), min_size=1, max_size=6),
    st.floats(0, 1),
    st.one_of(st.none(), st.integers(1, 20_000)),
)
def test_shares_add_up_and_leave_no_corpus_out(
    sizes: dict[str, int], alpha: float, limit: int | None
) -> None:
    targets = allot(sizes, alpha=alpha, limit=limit)
    wanted = min(sum(sizes.values()), limit or sum(sizes.values()))
    assert all(target >= 1 for target in targets.values())
    assert wanted <= sum(targets.values()) <= max(wanted, wanted + len(sizes) - 1)
    by_size = sorted(sizes, key=lambda name: sizes[name])
    shares = [targets[name] for name in by_size]
    assert all(later >= earlier - 1 for earlier, later in itertools.pairwise(shares))


def test_the_exponent_lifts_what_is_rare() -> None:
    sizes = {"big": 900, "small": 100}
    assert allot(sizes, alpha=1, limit=None) == {"big": 900, "small": 100}
    assert allot(sizes, alpha=0, limit=None) == {"big": 500, "small": 500}
    # 0.9^0.5 : 0.1^0.5 = 3 : 1
    assert allot(sizes, alpha=0.5, limit=None) == {"big": 750, "small": 250}
    assert allot(sizes, alpha=0.5, limit=40) == {"big": 30, "small": 10}


def test_one_corpus_is_read_whole_and_in_order() -> None:
    texts = [str(i) for i in range(100)]
    assert read({"": texts}) == texts


def test_what_is_rare_is_repeated_evenly_and_what_is_common_sampled() -> None:
    corpora = {"big": [f"b{i}" for i in range(900)], "small": [f"s{i}" for i in range(100)]}
    drawn = Counter(read(corpora, alpha=0.5))
    small = [drawn[text] for text in corpora["small"]]
    assert sum(small) == 250
    assert set(small) == {2, 3}
    big = [drawn[text] for text in corpora["big"]]
    assert sum(big) == 750
    assert set(big) == {0, 1}


def test_the_same_seed_draws_the_same_texts_whatever_stands_beside() -> None:
    texts = [str(i) for i in range(1000)]
    first = read({"en": texts}, limit=100, seed=7)
    assert first == read({"en": texts}, limit=100, seed=7)
    assert first != read({"en": texts}, limit=100, seed=8)
    assert len(set(first)) == 100


def test_sampling_is_uniform() -> None:
    texts = [str(i) for i in range(20)]
    drawn: Counter[str] = Counter()
    for seed in range(2000):
        drawn.update(read({"": texts}, limit=5, seed=seed))
    # 500 of each expected; the sum of squares is chi-square with 19 degrees of freedom, less the
    # factor 15/20 for drawing without return. 43.8 is exceeded once in a thousand.
    statistic = sum((drawn[text] - 500) ** 2 / 500 for text in texts) / (15 / 20)
    assert statistic < 43.8


@settings(deadline=None)
@given(st.text(alphabet="ab \n\r\t\u2028\u2585\u00e9", max_size=200), st.integers(16, 40))
def test_lines_keep_every_character_but_white_space(text: str, limit: int) -> None:
    lines = Lines(max_length=limit)
    cut = list(lines.of(text))
    assert all(0 < len(line) <= limit and line == line.strip() for line in cut)
    assert "".join("".join(cut).split()) == "".join(text.replace("\u2585", " ").split())
    assert lines.num_lines == len(cut)


def test_long_lines_are_cut_at_white_space_where_there_is_some() -> None:
    lines = Lines(max_length=16)
    assert list(lines.of("one two three four five")) == ["one two three", "four five"]
    assert list(lines.of("x" * 40)) == ["x" * 16, "x" * 16, "x" * 8]
    assert list(lines.of(" \t ")) == []
    assert list(lines.of("a\u2585b")) == ["a b"]
    assert (lines.num_cut, lines.num_blank, lines.num_reserved) == (2, 1, 1)


def test_what_cannot_be_read_twice_is_refused() -> None:
    with pytest.raises(InputError, match="read only once"):
        open_corpora(iter(["a"]))
    with pytest.raises(InputError, match="corpus 'en' is generator"):
        open_corpora({"en": (text for text in ["a"])})
    with pytest.raises(InputError, match="no corpus"):
        open_corpora({})
    with pytest.raises(TextError, match="one str"):
        open_corpora("text")
    with pytest.raises(TextError, match="corpus 'en' is str"):
        open_corpora({"en": "text"})


@pytest.mark.parametrize("wrong", [None, b"bytes", "\ud800"])
def test_a_wrong_text_is_named_by_its_row(wrong: object) -> None:
    corpora = {"en": ["fine", wrong]}
    with pytest.raises(TextError, match="text 1 of corpus 'en'") as caught:
        count_texts(corpora, lambda _text: None, ignore)  # type: ignore[arg-type]
    assert caught.value.row == 1
    with pytest.raises(InputError, match="holds no texts"):
        count_texts({"en": []}, lambda _text: None, ignore)
