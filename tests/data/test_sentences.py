"""Texts are cut into sentences, and keep their tokens."""

from __future__ import annotations

import random
import re
import sys
from typing import TYPE_CHECKING

import numpy as np
import pytest

from encoder_engine import Tokenizer
from encoder_engine.data.sentences import encode_sentences, find_sentences, split_sentences
from encoder_engine.errors import TextError
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


# The same rule as an expression.
CLOSING = "[" + re.escape("\"')]\u201d\u2019\u00bb\u300d\u300f\uff09") + "]*+"
WIDE = "\u3002\uff01\uff1f\uff61"
ENDS = re.compile(
    rf"(?<=[.!?\u2026])({CLOSING})\s+|(?<=[{WIDE}])({CLOSING})\s*(?=[^\s{WIDE}])"
    r"|(?<!\s)()\s*\n\s*"
)


def find_by_expression(text: str) -> list[tuple[int, int]]:
    found, start = [], 0
    borders = [(m.end(m.lastindex or 0), m.end()) for m in ENDS.finditer(text)]
    for end, following in [*borders, (len(text), len(text))]:
        inner = text[start:end].strip()
        if inner:
            begin = start + text[start:end].index(inner[0])
            found.append((begin, begin + len(inner)))
        start = following
    return found


@pytest.mark.parametrize(
    "others", ["ab", "a\u00e9\u00bb\u00a0\x85", "\u4e2d\u2026\u3002", "\U0001f642"]
)
def test_sentences_are_those_of_the_expression(others: str) -> None:
    rng = random.Random(others)
    few = '.! \n"' + others
    many = (
        few + ".?!\u2026')]\u201d\u2019\u300d\u300f\uff09\u3002\uff01\uff1f\uff61 \t\r\n\x1c\u3000"
    )
    for alphabet in (few, many):
        for size in range(400):
            text = "".join(rng.choices(alphabet, k=size % 40))
            assert find_sentences(text) == find_by_expression(text), text


def test_every_character_ends_a_sentence_or_not() -> None:
    places = ["a{0}b. {0}c{0} \n{0}\u3002{0}\u3002\u300d{0}d" for _ in range(512)]
    # Beyond the first plane no character is special, and some are enough.
    for first in (*range(0, 2**16, 512), *range(2**16, sys.maxunicode, 2**14)):
        text = "|".join(place.format(chr(first + i)) for i, place in enumerate(places))
        assert find_sentences(text) == find_by_expression(text), hex(first)


def test_runs_are_read_once() -> None:
    size = 10**7
    for run in (" ", ".", "\u3002 ", ".'"):
        text = run * (size // len(run)) + "x"
        last = find_sentences(text)[-1]
        assert last[1] == len(text)


def test_what_is_no_text_is_refused() -> None:
    with pytest.raises(TextError, match="text at row 0 is bytes, expected str"):
        find_sentences(b"a")  # type: ignore[arg-type]


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
