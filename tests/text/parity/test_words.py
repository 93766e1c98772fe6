"""Texts given as lists of words, as taggers have them: the library's is_pretokenized."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

import pytest

from encoder_engine.errors import TextError
from encoder_engine.text import Tokenizer
from tests.text.strings import StringMaker

if TYPE_CHECKING:
    from pathlib import Path

    from tests.text.parity.peers import Peer

PIECES = (
    "New",
    "York's",
    "naïve",
    "[MASK]",
    "",
    " ",
    "a b",
    "中文",
    "x" * 120,
    "don't",
    "e\u0301",
    "42",
)


def word_lists(seed: int) -> list[list[str]]:
    """Make lists of words, empty ones and words of several words among them."""
    rng = random.Random(seed)
    maker = StringMaker(rng, ["low", "##er", "new"])
    return [
        [
            rng.choice(PIECES) if rng.random() < 0.7 else maker.text()
            for _ in range(rng.randrange(9))
        ]
        for _ in range(300)
    ]


@pytest.mark.parametrize("max_length", [None, 7])
@pytest.mark.parametrize("paired", [False, True])
def test_words_give_the_ids_offsets_and_word_ids_of_the_library(
    minilm_peer: Peer, paired: bool, max_length: int | None
) -> None:
    texts, pairs = word_lists(1), word_lists(2) if paired else None
    ours = minilm_peer.ours.encode_batch(
        texts, pairs, max_length=max_length, return_offsets=True, is_split_into_words=True
    )
    if max_length is not None:
        minilm_peer.theirs.enable_truncation(max_length)
    batch = list(zip(texts, pairs, strict=True)) if pairs is not None else texts
    theirs = minilm_peer.theirs.encode_batch(batch, is_pretokenized=True)
    minilm_peer.theirs.no_truncation()
    starts = ours.cu_seqlens
    for row, expected in enumerate(theirs):
        part = slice(starts[row], starts[row + 1])
        assert ours.ids[part].tolist() == expected.ids, texts[row]
        assert [tuple(span) for span in ours.offsets[part].tolist()] == expected.offsets
        words = [-1 if word is None else word for word in expected.word_ids]
        assert ours.word_ids[part].tolist() == words
        assert ours.type_ids[part].tolist() == expected.type_ids


def test_words_are_encoded_the_same_on_any_number_of_threads(minilm_peer: Peer) -> None:
    texts = word_lists(3) * 20
    one, four = (
        minilm_peer.ours.encode_batch(texts, is_split_into_words=True, num_threads=n)
        for n in (1, 4)
    )
    assert one.tolist() == four.tolist()


def test_batches_and_texts_without_words_are_empty_rows(toy_folder: Path) -> None:
    tokenizer = Tokenizer.from_pretrained(toy_folder)
    assert tokenizer.encode_batch([[], ()], is_split_into_words=True).tolist() == [[2, 3], [2, 3]]
    assert tokenizer.encode_batch([], is_split_into_words=True).tolist() == []
    assert tokenizer.encode_batch([[]], [[]], is_split_into_words=True).tolist() == [[2, 3, 3]]


@pytest.mark.parametrize(
    ("texts", "message"),
    [
        ([["a"], "low"], "text at row 1 is str, expected a list of words"),
        ([["a"], ["low", None]], "word 1 of the text at row 1 is NoneType, expected str"),
        ([["a"], ["low", "b\ud800"]], "word 1 of the text at row 1 has a lone surrogate U\\+D800"),
    ],
)
def test_a_wrong_word_is_named(toy_folder: Path, texts: list[object], message: str) -> None:
    tokenizer = Tokenizer.from_pretrained(toy_folder)
    with pytest.raises(TextError, match=message) as caught:
        tokenizer.encode_batch(texts, is_split_into_words=True)  # type: ignore[arg-type]
    assert caught.value.row == 1
