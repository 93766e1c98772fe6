"""A Tokenizer is called without transformers: its own mapping, layouts, padding and errors."""

from __future__ import annotations

import pickle
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from encoder_engine.errors import BatchError, EncoderEngineWarning, InputError, TextError
from encoder_engine.text import Tokenizer
from encoder_engine.text.calls.batch_encoding import BatchEncoding, CharSpan, TokenSpan

if TYPE_CHECKING:
    from pathlib import Path

TEXTS = ["want low", "a runn ing unwanted"]


@pytest.fixture
def toy(toy_folder: Path, monkeypatch: pytest.MonkeyPatch) -> Tokenizer:
    """Give a small tokenizer, as where transformers is not loaded."""
    monkeypatch.delitem(sys.modules, "transformers.tokenization_utils_base", raising=False)
    return Tokenizer.from_pretrained(toy_folder)


def test_one_text_gives_one_row_and_a_batch_gives_many(toy: Tokenizer) -> None:
    assert dict(toy("want low")) == {
        "input_ids": [2, 5, 13, 3],
        "token_type_ids": [0, 0, 0, 0],
        "attention_mask": [1, 1, 1, 1],
    }
    assert toy(["want low"])["input_ids"] == [[2, 5, 13, 3]]
    assert toy("want", "low").token_type_ids == [0, 0, 0, 1, 1]
    assert (
        toy([("want", "low"), ("a", "b")])["input_ids"]
        == toy(["want", "a"], ["low", "b"]).input_ids
    )
    assert toy("want", "").input_ids == toy("want").input_ids
    assert toy([])["input_ids"] == []


@pytest.mark.parametrize("side", ["left", "right"])
def test_lists_and_arrays_hold_the_same(toy: Tokenizer, side: Any) -> None:
    settings: dict[str, Any] = {
        "padding": True,
        "padding_side": side,
        "pad_to_multiple_of": 4,
        "return_special_tokens_mask": True,
        "return_offsets_mapping": True,
        "return_length": True,
    }
    lists, arrays = toy(TEXTS, **settings), toy(TEXTS, return_tensors="np", **settings)
    assert list(lists) == list(arrays)
    assert arrays["offset_mapping"].shape == (2, 8, 2)
    for name, values in arrays.items():
        assert values.dtype == np.int64
        np.testing.assert_array_equal(values, lists[name])


def test_spans_beyond_those_that_are_kept_are_their_own(toy: Tokenizer) -> None:
    texts = ["want low " * 400, "x" * 90 + " low", " low" * 700, "want"]
    for _ in range(2):
        found = toy(texts, return_offsets_mapping=True)["offset_mapping"]
        expected = toy.encode_batch(texts, return_offsets=True)
        assert [len(row) for row in found] == expected.lengths.tolist()
        assert [[*span] for row in found for span in row] == expected.offsets.tolist()


def test_rows_answer_for_tokens_words_and_characters(toy: Tokenizer) -> None:
    found = toy(TEXTS, ["low", "b"], padding=True)
    assert type(found) is BatchEncoding
    assert found.tokens(0) == ["[CLS]", "want", "low", "[SEP]", "low", "[SEP]", *["[PAD]"] * 4]
    assert found.word_ids(0) == [None, 0, 1, None, 0, *[None] * 5]
    assert found.sequence_ids(0) == [None, 0, 0, None, 1, *[None] * 5]
    assert found.char_to_token(0, 5) == 2
    assert found.char_to_token(0, 1, 1) == 4
    assert found.char_to_token(batch_or_char_index=0, char_index=1, sequence_index=1) == 4
    with pytest.raises(TypeError, match="char_to_token takes batch_or_char_index"):
        found.char_to_token(0, word_index=1)
    assert found.char_to_word(0, 5) == 1
    assert found.token_to_chars(0, 2) == CharSpan(5, 8)
    assert found.token_to_sequence(0, 4) == 1
    assert found.token_to_word(0, 0) is None
    assert found.word_to_tokens(1, 1) == TokenSpan(2, 3)
    assert found.word_to_chars(0, 1) == CharSpan(5, 8)
    assert found[0].ids == found["input_ids"][0]
    assert [row.ids for row in found[0:2]] == found["input_ids"]
    assert found.n_sequences == 2
    again = pickle.loads(pickle.dumps(found))
    assert again.tokens(1) == found.tokens(1)
    assert again.word_ids(1) == found.word_ids(1)
    with pytest.raises(AttributeError, match="no field 'labels'"):
        _ = found.labels


def test_rows_are_those_of_the_texts_at_the_call(toy: Tokenizer) -> None:
    texts = list(TEXTS)
    found = toy(texts)
    texts[0] = "a"
    assert found.tokens(0) == ["[CLS]", "want", "low", "[SEP]"]


def test_padded_rows_have_no_texts(toy: Tokenizer) -> None:
    found = toy.pad([{"input_ids": [2, 3]}, {"input_ids": [2, 5, 3]}])
    assert found["input_ids"] == [[2, 3, 0], [2, 5, 3]]
    assert found["attention_mask"] == [[1, 1, 0], [1, 1, 1]]
    assert not found.is_fast
    with pytest.raises(InputError, match="has no texts"):
        found.tokens(0)


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ([{"ids": [1]}], "no input_ids to pad"),
        ([{"input_ids": [1], "labels": 1}, {"input_ids": [1]}], "row 1 has no labels"),
        ([{"input_ids": [1, 2], "attention_mask": [1]}], "not as long as those of input_ids"),
        ([{"input_ids": [1.5]}], "input_ids cannot be padded"),
        ([{"input_ids": [2**40]}], "input_ids cannot be padded"),
        ({"input_ids": [[1]], "labels": [1, 2]}, "it has 2 rows, but input_ids has 1"),
        ("rows", "there is str to pad"),
        ([{"input_ids": [[1], [2]]}], "input_ids cannot be padded"),
    ],
)
def test_rows_that_cannot_be_padded_are_refused(toy: Tokenizer, rows: Any, message: str) -> None:
    with pytest.raises(InputError, match=message):
        toy.pad(rows)


def test_settings_that_contradict_each_other_are_refused(toy: Tokenizer) -> None:
    with pytest.raises(InputError, match="neither text nor text_target"):
        toy()
    with pytest.raises(InputError, match="no multiple of pad_to_multiple_of=4"):
        toy("a", padding=True, truncation=True, max_length=9, pad_to_multiple_of=4)
    with pytest.raises(InputError, match="padding is 'longst'; known are 'longest'"):
        toy("a", padding="longst")
    with pytest.raises(InputError, match="from 3 to 4 tokens, which no tensor holds"):
        toy(["a", "a b"], return_tensors="pt")
    with pytest.raises(InputError, match="the text at row 0 is a pair") as refused:
        toy([("a", "b"), "c"])
    assert refused.value.row == 1
    with pytest.raises(TextError, match="text_pair is one str, but text is a batch"):
        toy(["a"], "b")
    with pytest.raises(InputError, match="row 1 has 3 tokens, more than max_length=2"):
        toy.pad([{"input_ids": [1]}, {"input_ids": [1, 2, 3]}], "max_length", 2)
    for _ in range(2):
        with pytest.warns(EncoderEngineWarning, match="max_length changes nothing"):
            toy("a", padding=True, max_length=9)
    assert toy("a", padding=True, truncation=True, max_length=8).input_ids
    for settings in ({"padding": 1}, {"max_length": 8.0}):
        with pytest.raises(InputError, match=r"padding is 1|max_length is (8\.0|float)"):
            toy("a", **{"padding": True, "truncation": True, "max_length": 8} | settings)


def test_a_tokenizer_without_padding_token_does_not_pad(tmp_path: Path) -> None:
    (tmp_path / "vocab.txt").write_text("[UNK]\n[CLS]\n[SEP]\nword\n")
    tokenizer = Tokenizer.from_pretrained(tmp_path / "vocab.txt", lowercase=True)
    with pytest.raises(BatchError, match="no padding token"):
        tokenizer("word", padding=True)
    assert tokenizer("word")["input_ids"] == [1, 3, 2]


@pytest.mark.slow
def test_a_call_imports_neither_transformers_nor_torch(toy_folder: Path) -> None:
    code = """
import sys
from encoder_engine import Tokenizer
found = Tokenizer.from_pretrained(sys.argv[1])(["a", "b c"], padding=True, return_tensors="np")
assert found.word_ids(0) == [None, 0, None, None]
assert not {"torch", "transformers", "tokenizers"} & set(sys.modules)
"""
    subprocess.run([sys.executable, "-c", code, toy_folder], check=True)
