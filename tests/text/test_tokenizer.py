"""The public face: what goes in, what comes out, and in which form."""

from __future__ import annotations

import pickle
import tracemalloc
from typing import TYPE_CHECKING

import numpy as np
import pytest

from encoder_engine.errors import BatchError, InputError
from encoder_engine.text import Tokenizer

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

TEXTS = ["UNwantéd,running", "", "low lowest [MASK]", "中 a!"]
ROWS = [[2, 9, 6, 7, 12, 10, 11, 3], [2, 3], [2, 13, 14, 4, 3], [2, 21, 15, 24, 3]]


@pytest.fixture
def tokenizer(toy_folder: Path) -> Tokenizer:
    """Read the toy."""
    return Tokenizer.from_pretrained(toy_folder)


def test_a_batch_is_packed(tokenizer: Tokenizer) -> None:
    encoding = tokenizer.encode_batch(TEXTS)
    assert encoding.tolist() == ROWS
    assert encoding.ids.dtype == encoding.cu_seqlens.dtype == encoding.type_ids.dtype == np.int32
    assert encoding.cu_seqlens.tolist() == [0, 8, 10, 15, 20]
    assert encoding.lengths.tolist() == [8, 2, 5, 5]
    assert not encoding.has_types
    assert encoding.overflow_to_sample.tolist() == [0, 1, 2, 3]
    assert len(encoding) == 4
    assert encoding.ids.flags.writeable  # torch.from_numpy asks for it
    assert repr(encoding) == "Encoding(rows=4, tokens=20, cut=0)"


def test_one_text_gives_its_ids(tokenizer: Tokenizer) -> None:
    ids = tokenizer.encode(TEXTS[0])
    assert ids.dtype == np.int32
    assert ids.tolist() == ROWS[0]
    assert tokenizer.encode(TEXTS[0], add_special_tokens=False).tolist() == ROWS[0][1:-1]


def test_an_empty_batch_gives_no_rows(tokenizer: Tokenizer) -> None:
    encoding = tokenizer.encode_batch([], return_offsets=True)
    assert (len(encoding), encoding.tolist(), encoding.cu_seqlens.tolist()) == (0, [], [0])
    assert encoding.offsets.shape == (0, 2)
    assert encoding.to_padded()["input_ids"].shape == (0, 0)
    assert tokenizer.encode_batch([], []).type_ids.tolist() == []


def generated() -> Iterator[str]:
    """Yield the texts one by one."""
    yield from TEXTS


class Text(str):
    """A str of another class."""

    __slots__ = ()


@pytest.mark.parametrize(
    "texts",
    [
        tuple(TEXTS),
        generated,
        np.array(TEXTS),
        np.array(TEXTS, dtype=object),
        [Text(text) for text in TEXTS],
    ],
    ids=["tuple", "generator", "numpy", "objects", "subclass"],
)
def test_texts_come_in_any_iterable(tokenizer: Tokenizer, texts: object) -> None:
    given = texts() if callable(texts) else texts
    assert tokenizer.encode_batch(given).tolist() == ROWS  # type: ignore[arg-type]


@pytest.mark.parametrize("wide", ["", "\xe9", "\u4e2d", "\U0001f600"])
def test_strings_are_read_at_every_width_python_holds_them_in(
    tokenizer: Tokenizer, wide: str
) -> None:
    assert tokenizer.encode("want low " + wide).tolist()[:3] == [2, 5, 13]
    assert tokenizer.encode(wide + " want low").tolist()[-3:] == [5, 13, 3]


def test_pairs_have_segments_and_sequences(tokenizer: Tokenizer) -> None:
    encoding = tokenizer.encode_batch(["low", ""], ["a b", "want"], return_offsets=True)
    assert encoding.tolist() == [[2, 13, 3, 15, 16, 3], [2, 3, 5, 3]]
    assert encoding.type_ids.tolist() == [0, 0, 0, 1, 1, 1, 0, 0, 1, 1]
    assert encoding.has_types
    assert encoding.sequence_ids.tolist() == [-1, 0, -1, 1, 1, -1, -1, -1, 1, -1]
    assert encoding.special_tokens_mask.tolist() == [1, 0, 1, 0, 0, 1, 1, 1, 0, 1]
    assert encoding.word_ids.tolist() == [-1, 0, -1, 0, 1, -1, -1, -1, 0, -1]
    assert encoding.offsets.tolist()[3:5] == [[0, 1], [2, 3]]


def test_offsets_count_characters_of_the_original_text(tokenizer: Tokenizer) -> None:
    text = "\x00UNwante\u0301d\u200b"
    encoding = tokenizer.encode_batch([text], return_offsets=True, add_special_tokens=False)
    assert [text[a:b] for a, b in encoding.offsets.tolist()] == ["UN", "want", "e\u0301d"]


def test_cut_rows_are_counted_and_marked(tokenizer: Tokenizer) -> None:
    encoding = tokenizer.encode_batch(["low a b", "low", "a b a b a"], max_length=4)
    assert encoding.tolist() == [[2, 13, 15, 3], [2, 13, 3], [2, 15, 16, 3]]
    assert encoding.num_truncated == 2
    assert encoding.truncated.tolist() == [True, False, True]


def test_overflow_rows_carry_what_was_cut(tokenizer: Tokenizer) -> None:
    texts = ["low a b a", "low"]
    encoding = tokenizer.encode_batch(texts, max_length=4, return_overflow=True)
    assert encoding.tolist() == [[2, 13, 15, 3], [2, 16, 15, 3], [2, 13, 3]]
    assert encoding.overflow_to_sample.tolist() == [0, 0, 1]
    assert encoding.num_truncated == 0
    shared = tokenizer.encode_batch(texts, max_length=4, stride=1)
    assert shared.tolist() == [[2, 13, 15, 3], [2, 15, 16, 3], [2, 16, 15, 3], [2, 13, 3]]


def test_cutting_from_the_left_keeps_the_end(tokenizer: Tokenizer) -> None:
    encoding = tokenizer.encode_batch(["low a b"], max_length=4, truncation_side="left")
    assert encoding.tolist() == [[2, 15, 16, 3]]


@pytest.mark.parametrize("truncation", [None, "do_not_truncate"])
def test_nothing_is_cut_without_a_strategy(tokenizer: Tokenizer, truncation: str | None) -> None:
    encoding = tokenizer.encode_batch(["low a b a"], max_length=3, truncation=truncation)
    assert encoding.lengths.tolist() == [6]


def test_rows_of_the_template_alone_are_possible(tokenizer: Tokenizer) -> None:
    encoding = tokenizer.encode_batch(["low a", ""], max_length=2)
    assert encoding.tolist() == [[2, 3], [2, 3]]
    assert encoding.truncated.tolist() == [True, False]


def test_padding_fills_either_side(tokenizer: Tokenizer) -> None:
    encoding = tokenizer.encode_batch(["low", ""], ["a", "b"])
    right = encoding.to_padded()
    assert right["input_ids"].tolist() == [[2, 13, 3, 15, 3], [2, 3, 16, 3, 0]]
    assert right["attention_mask"].tolist() == [[1, 1, 1, 1, 1], [1, 1, 1, 1, 0]]
    assert right["token_type_ids"].tolist() == [[0, 0, 0, 1, 1], [0, 0, 1, 1, 0]]
    assert {array.dtype for array in right.values()} == {np.dtype(np.int64)}
    left = encoding.to_padded(side="left", multiple_of=4)
    assert left["input_ids"].tolist() == [[0, 0, 0, 2, 13, 3, 15, 3], [0, 0, 0, 0, 2, 3, 16, 3]]
    assert encoding.to_padded(length=7)["input_ids"].shape == (2, 7)


def test_packed_batches_hold_the_same_rows(tokenizer: Tokenizer) -> None:
    batch = tokenizer.encode_batch(["low", ""], ["a", "b"]).to_packed("cpu")
    assert batch.input_ids.tolist() == [2, 13, 3, 15, 3, 2, 3, 16, 3]
    assert batch.cu_seqlens.tolist() == [0, 5, 9]
    assert batch.max_seqlen == 5


def test_tokens_and_ids_translate(tokenizer: Tokenizer) -> None:
    assert tokenizer.vocab_size == 26
    assert tokenizer.token_to_id("##ed") == 7
    assert tokenizer.token_to_id("none") is None
    assert tokenizer.id_to_token(7) == "##ed"
    assert tokenizer.id_to_token(26) is None
    special = (
        tokenizer.pad_token_id,
        tokenizer.unk_token_id,
        tokenizer.cls_token_id,
        tokenizer.sep_token_id,
        tokenizer.mask_token_id,
    )
    assert special == (0, 1, 2, 3, 4)
    assert repr(tokenizer) == "Tokenizer(WordPiece, lower-cased, 26 tokens)"


def test_decoding_joins_pieces(tokenizer: Tokenizer) -> None:
    ids = tokenizer.encode("UNwanted, running!")
    assert tokenizer.decode(ids) == "unwanted, running!"
    assert tokenizer.decode(ids, skip_special_tokens=False) == "[CLS] unwanted, running! [SEP]"
    assert tokenizer.decode([]) == ""


def test_a_pickled_tokenizer_works_on(tokenizer: Tokenizer) -> None:
    copy = pickle.loads(pickle.dumps(tokenizer))
    assert copy.spec == tokenizer.spec
    assert copy.encode_batch(TEXTS).tolist() == ROWS


def test_offsets_and_words_must_be_asked_for(tokenizer: Tokenizer) -> None:
    encoding = tokenizer.encode_batch(TEXTS)
    with pytest.raises(InputError, match="return_offsets=True"):
        _ = encoding.offsets
    with pytest.raises(InputError, match="return_offsets=True"):
        _ = encoding.word_ids


def test_padding_refuses_what_does_not_fit(tokenizer: Tokenizer) -> None:
    encoding = tokenizer.encode_batch(["", "low a"])
    with pytest.raises(BatchError, match="row 1 has 4 tokens") as caught:
        encoding.to_padded(length=3)
    assert caught.value.row == 1
    with pytest.raises(InputError, match="side"):
        encoding.to_padded(side="up")  # type: ignore[arg-type]
    with pytest.raises(InputError, match="multiple_of"):
        encoding.to_padded(multiple_of=0)


def test_a_cut_text_is_not_read_to_its_end(tokenizer: Tokenizer) -> None:
    text = "low a " * 5_000_000
    tracemalloc.start()
    encoding = tokenizer.encode_batch([text], max_length=512)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert encoding.lengths.tolist() == [512]
    assert encoding.num_truncated == 1
    assert peak < 1_000_000


def test_two_endless_texts_of_a_pair_are_cut_as_if_read(tokenizer: Tokenizer) -> None:
    long, longer = "a " * 30_000, "b " * 60_000
    for texts, pairs, odd in ((long, longer, 1), (longer, long, 0)):
        encoding = tokenizer.encode_batch([texts], [pairs], max_length=10)
        counts = np.bincount(encoding.sequence_ids[encoding.sequence_ids >= 0])
        assert counts.tolist() == ([3, 4] if odd else [4, 3])
