"""The model sees sentences of words as their text: words with the spaces between them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

import encoder_engine as ee
from encoder_engine.analysis.subject import Subject
from encoder_engine.tasks.words.windows import marks_spaces
from tests.analysis.conftest import subject_of
from tests.text.formats.test_library import make_modernbert, make_roberta

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

SENTENCES = [
    ["the", "hello", ",", "the"],
    ["", "\u6771\u4eac", "don", "'t", "12", "(", "na\u00efve", ")"],
    ["<mask>", "the", "<mask>", "."],
    ["world"],
]


# The empty word has no token.
@pytest.mark.filterwarnings("ignore::encoder_engine.errors.MendedRowsWarning")
@pytest.mark.parametrize(
    "maker",
    [make_roberta, lambda folder: make_roberta(folder, prefixed=True), make_modernbert],
    ids=["roberta", "prefixed", "modernbert"],
)
def test_words_have_the_tokens_of_the_joined_text(
    maker: Callable[[Path], Path], tmp_path: Path
) -> None:
    subject = subject_of(ee.Tokenizer.from_pretrained(maker(tmp_path)))
    for words in SENTENCES:
        (batch,) = subject.word_batches([words])
        text = " ".join(word for word in words if word)
        assert batch.batch.input_ids.tolist() == subject.tokenizer.encode(text).tolist()
        # Every token is of the word that the text has there.
        offsets = subject.tokenizer.encode_batch([text], return_offsets=True).offsets
        before = [text[: offsets[token][1]].count(" ") for token in batch.tokens.tolist()]
        there = [number for number, word in enumerate(words) if word]
        assert [there[place] for place in before] == batch.words[batch.owners].tolist()


@pytest.mark.parametrize("subwords", ["first", "all"])
def test_words_of_wordpiece_are_encoded_alone(tiny: Path, subwords: str) -> None:
    subject = Subject.from_pretrained(tiny, "cpu")
    assert not marks_spaces(subject.tokenizer)
    sentence = ["the", "good", "film", "unheard"]
    (batch,) = subject.word_batches([sentence], "first" if subwords == "first" else "all")
    alone = subject.tokenizer.encode_batch([sentence], is_split_into_words=True)
    assert batch.batch.input_ids.tolist() == alone.ids.tolist()
