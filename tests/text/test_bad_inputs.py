"""Whatever is wrong with texts or arguments has a type, a row and a way out."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from encoder_engine.errors import InputError, TextError, TokenIdError
from encoder_engine.text import Tokenizer
from encoder_engine.text.sampling import UnigramSampling

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture
def tokenizer(toy_folder: Path) -> Tokenizer:
    """Read the toy."""
    return Tokenizer.from_pretrained(toy_folder)


@pytest.mark.parametrize(
    ("texts", "row", "message"),
    [
        (["a", None], 1, "row 1 is NoneType.*drop the row"),
        ([b"a"], 0, "is bytes.*decode it first"),
        ([bytearray(b"a")], 0, "is bytearray.*decode"),
        (["a", "b", 3], 2, "row 2 is int"),
        ([float("nan")], 0, "is float.*missing value"),
        ([["a", "b"]], 0, "is list.*pairs="),
        ([("a", "b")], 0, "is tuple.*pairs="),
        ([{"text": "a"}], 0, "is dict"),
        ([object()], 0, "is object"),
        ([True], 0, "is bool"),
        (["ok", "a\ud800b"], 1, r"U\+D800 at character 1.*surrogatepass"),
        (["\udfff"], 0, r"U\+DFFF at character 0"),
        (["\U0001f600\ude00"], 0, r"U\+DE00 at character 1"),
        (["é" * 70 + "\ud83d"], 0, "at character 70"),
    ],
)
def test_texts_that_are_none(
    tokenizer: Tokenizer, texts: list[Any], row: int, message: str
) -> None:
    with pytest.raises(TextError, match=message) as caught:
        tokenizer.encode_batch(texts)
    assert caught.value.row == row
    with pytest.raises(TextError, match=f"first text at row {row}"):
        tokenizer.encode_batch(texts, ["a"] * len(texts))
    with pytest.raises(TextError, match=f"second text at row {row}") as caught:
        tokenizer.encode_batch(["a"] * len(texts), texts)
    assert caught.value.row == row


@pytest.mark.parametrize("texts", ["text", b"text", None, 5, 1.5, object()])
def test_batches_that_are_none(tokenizer: Tokenizer, texts: Any) -> None:
    with pytest.raises(TextError, match=r"^texts is"):
        tokenizer.encode_batch(texts)
    if texts is not None:
        with pytest.raises(TextError, match=r"^pairs is"):
            tokenizer.encode_batch(["a"], texts)


@pytest.mark.parametrize("texts", [{"a", "b"}, frozenset("ab"), {"a": "b"}, {"a": 1}.keys()])
def test_batches_without_order(tokenizer: Tokenizer, texts: Any) -> None:
    with pytest.raises(InputError, match=r"^texts is .*order is not fixed; pass a list"):
        tokenizer.encode_batch(texts)
    with pytest.raises(InputError, match=r"^pairs is"):
        tokenizer.encode_batch(["a"], texts)


@pytest.mark.parametrize("text", [None, b"a", 1, ["a"]])
def test_one_text_that_is_none(tokenizer: Tokenizer, text: Any) -> None:
    with pytest.raises(TextError, match=r"^the text is") as caught:
        tokenizer.encode(text)
    assert caught.value.row is None


def test_one_text_with_a_lone_surrogate(tokenizer: Tokenizer) -> None:
    with pytest.raises(TextError, match=r"the text has a lone surrogate U\+D800 at character 2"):
        tokenizer.encode("ab\ud800")


def test_the_advice_for_surrogates_works(tokenizer: Tokenizer) -> None:
    broken = "low \ud83d\ude00 \ud83d"
    mended = broken.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    assert mended == "low \U0001f600 \ufffd"
    assert tokenizer.encode(mended)[1] == 13


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"pairs": ["a", "b"]}, "1 texts but 2 pairs"),
        ({"pairs": []}, "1 texts but 0 pairs"),
        ({"max_length": -1}, "max_length is -1"),
        ({"max_length": 1}, "max_length is 1, but the template alone takes 2"),
        ({"max_length": 2, "pairs": ["b"]}, "template alone takes 3"),
        ({"max_length": 2**31}, "less than 2"),
        ({"max_length": 4.0}, "max_length is float"),
        ({"max_length": "512"}, "max_length is str"),
        ({"max_length": True}, "max_length is bool True"),
        ({"stride": 1}, "without max_length"),
        ({"stride": -1, "max_length": 8}, "stride is -1"),
        ({"stride": 1.5, "max_length": 8}, "stride is float"),
        ({"stride": 6, "max_length": 8}, "room for 6 tokens"),
        ({"stride": 9, "max_length": 8}, "room for 6 tokens"),
        ({"stride": 1, "max_length": 8, "return_overflow": False}, "return_overflow=False"),
        ({"max_length": 2, "return_overflow": True}, "room for 0 tokens"),
        ({"truncation": "longest"}, "known are 'do_not_truncate', 'longest_first'"),
        ({"truncation": True}, "truncation is True"),
        ({"truncation": ["only_first"]}, "known are"),
        ({"truncation": "only_second", "max_length": 8}, "needs pairs"),
        ({"truncation_side": "top", "max_length": 8}, "truncation_side is 'top'"),
        ({"num_threads": 0}, "num_threads is 0"),
        ({"num_threads": -2}, "num_threads is -2"),
        ({"num_threads": 1.5}, "num_threads is float"),
        ({"num_threads": "2"}, "num_threads is str"),
    ],
)
def test_arguments_that_contradict(
    tokenizer: Tokenizer, arguments: dict[str, Any], message: str
) -> None:
    with pytest.raises(InputError, match=message):
        tokenizer.encode_batch(["a b"], **arguments)


class Shorter(list[str]):
    """A list whose iterator passes over the first item."""

    def __iter__(self) -> Iterator[str]:
        return iter(self[1:])


def test_pairs_are_counted_as_they_are_read(tokenizer: Tokenizer) -> None:
    texts, fewer = ["a"] * 100, Shorter(["a"] * 100)
    with pytest.raises(InputError, match="there are 100 texts but 99 pairs"):
        tokenizer.encode_batch(texts, fewer)
    with pytest.raises(InputError, match="there are 99 texts but 100 pairs"):
        tokenizer.encode_batch(fewer, texts)
    assert len(tokenizer.encode_batch(fewer, fewer)) == 99


@pytest.mark.parametrize(
    ("texts", "pairs", "arguments", "row", "message"),
    [
        (
            ["a", "a b"],
            ["b", "a b a b a b"],
            {"max_length": 6, "truncation": "only_first"},
            1,
            "first text at row 1 would have to go.*at least 4 tokens",
        ),
        (
            ["a b a b a"],
            ["a"],
            {"max_length": 6, "truncation": "only_second"},
            0,
            "second text at row 0 would have to go",
        ),
        (
            ["a", "a b a b"],
            ["a", "a b a b"],
            {"max_length": 7, "stride": 2},
            1,
            "first text at row 1 keeps 2 tokens a row",
        ),
    ],
)
def test_rows_that_cannot_be_cut_as_asked(
    tokenizer: Tokenizer,
    texts: list[str],
    pairs: list[str],
    arguments: dict[str, Any],
    row: int,
    message: str,
) -> None:
    with pytest.raises(InputError, match=message) as caught:
        tokenizer.encode_batch(texts, pairs, **arguments)
    assert caught.value.row == row


@pytest.mark.parametrize("ids", [[26], [-1], [2, 13, 1000], [2**40]])
def test_ids_outside_the_vocabulary(tokenizer: Tokenizer, ids: list[int]) -> None:
    with pytest.raises(TokenIdError, match=f"position {len(ids) - 1} is not in the vocabulary"):
        tokenizer.decode(ids)


@pytest.mark.parametrize("ids", [[1.5], ["1"], [[1]], [None]])
def test_ids_that_are_no_integers(tokenizer: Tokenizer, ids: Any) -> None:
    with pytest.raises(TokenIdError, match="at position 0 is not an id"):
        tokenizer.decode(ids)


@pytest.mark.parametrize("ids", [5, None, np.int32(5), np.array(5)])
def test_an_id_alone_is_no_row(tokenizer: Tokenizer, ids: Any) -> None:
    with pytest.raises(TokenIdError, match="expected the integers of one row"):
        tokenizer.decode(ids)


@pytest.mark.parametrize("value", [-1, "8", 8.0, True, 2**62, 2**70])
def test_sizes_of_a_rectangle_that_are_none(tokenizer: Tokenizer, value: Any) -> None:
    for texts in (["a"], []):
        encoding = tokenizer.encode_batch(texts)
        with pytest.raises(InputError, match="length is"):
            encoding.to_padded(length=value)
        with pytest.raises(InputError, match="multiple_of is"):
            encoding.to_padded(multiple_of=value)


def test_an_alpha_beyond_all_floats() -> None:
    with pytest.raises(InputError, match="expected at least 0 and at most"):
        UnigramSampling(alpha=10**400)


def test_the_first_row_in_error_is_named_whatever_the_threads_do(tokenizer: Tokenizer) -> None:
    texts = ["low a " * 300] * 2000
    texts[700] += "\ud800"
    texts[1900] += "\ud800"
    for _ in range(20):
        with pytest.raises(TextError) as caught:
            tokenizer.encode_batch(texts, num_threads=4)
        assert caught.value.row == 700


def test_a_tokenizer_works_on_after_errors(tokenizer: Tokenizer) -> None:
    for _ in range(100):
        with pytest.raises(TextError):
            tokenizer.encode_batch(["low a", "\ud800"])
        assert tokenizer.encode_batch(["low a"]).tolist() == [[2, 13, 15, 3]]


def test_a_native_encoder_that_was_never_built() -> None:
    from encoder_engine import _native

    empty = _native.BatchEncoder.__new__(_native.BatchEncoder)
    with pytest.raises(TypeError, match="never initialised"):
        empty.encode("a", True)
    with pytest.raises(TypeError, match="2 arguments"):
        empty.encode("a")  # type: ignore[call-arg]
