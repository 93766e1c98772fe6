"""Texts are cut into sentences, and keep their tokens."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest

from encoder_engine import Tokenizer
from encoder_engine.data.sentences import _ENDS, encode_sentences, find_sentences, split_sentences
from tests.data.hygiene.attempts import CountedSearch
from tests.embedding.test_families import save_tokenizer

if TYPE_CHECKING:
    from pathlib import Path

TEXTS = [
    "The model of a text. A text of the model! The text.",
    "One sentence alone",
    "",
    "A. The a.",
    " The text.\n\n A query?  The row. ",
    " \n",
    "The a.",
    "\u00fc\u4e2d\U0001f642. \U0001f642 a.",
]


@pytest.mark.parametrize(
    ("text", "sentences"),
    [
        ("", []),
        ("  \n \n", []),
        ("One. Two! Three? Four", ["One.", "Two!", "Three?", "Four"]),
        ("Pi is 3.14 or so. Yes.", ["Pi is 3.14 or so.", "Yes."]),
        ('He said "Go." Then he went.', ['He said "Go."', "Then he went."]),
        ("a line\nanother one\r\n\r\nthird", ["a line", "another one", "third"]),
        ("これは一。これは二。はい", ["これは一。", "これは二。", "はい"]),
        ("「はい。」と言った。", ["「はい。」", "と言った。"]),
        # The quote was a sentence of its own at the end of a text, and so were further marks.
        ("「はい。」", ["「はい。」"]),
        ("彼は「はい。」 \n「え。。」『何。』", ["彼は「はい。」", "「え。。」", "『何。』"]),
        ("え\uff01\uff1fそう。。。はい", ["え\uff01\uff1f", "そう。。。", "はい"]),
        ("Wait... what?  (Nothing.) Ok", ["Wait...", "what?", "(Nothing.)", "Ok"]),
    ],
)
def test_sentences_end_where_they_do(text: str, sentences: list[str]) -> None:
    assert split_sentences(text) == sentences


def test_white_space_is_tried_once() -> None:
    # Every space of a run was tried as its first: work grew with the square of the run.
    few = CountedSearch(_ENDS, " " * 64 + "x", most=200_000)
    assert few.spans() == []
    # Linear work doubles; quadratic work would become four times as much.
    assert CountedSearch(_ENDS, " " * 128 + "x", most=3 * few.num_attempts).spans() == []


@pytest.mark.parametrize("text", TEXTS)
def test_no_character_but_white_space_is_lost(text: str) -> None:
    assert "".join("".join(split_sentences(text)).split()) == "".join(text.split())
    assert [text[begin:end] for begin, end in find_sentences(text)] == split_sentences(text)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["bert", "roberta", "t5"])
def test_the_sentences_of_a_text_keep_its_tokens(name: str, tmp_path: Path) -> None:
    # A vocabulary of bytes writes the space between sentences, which was lost.
    save_tokenizer(name, tmp_path)
    tokenizer = Tokenizer.from_pretrained(tmp_path)
    for text, found in zip(TEXTS, encode_sentences(tokenizer, TEXTS), strict=True):
        parts = found.split(found.ids_T)
        assert np.concatenate(parts).tolist() == tokenizer.encode(text, False).tolist()
        assert found.sentences == find_sentences(text)
        assert len(parts) == max(len(found.sentences), 1)
    alone = [tokenizer.decode(tokenizer.encode(one, False)) for one in split_sentences(TEXTS[0])]
    (first,) = encode_sentences(tokenizer, TEXTS[:1])
    assert [tokenizer.decode(ids).strip() for ids in first.split(first.ids_T)] == [
        one.strip() for one in alone
    ]
