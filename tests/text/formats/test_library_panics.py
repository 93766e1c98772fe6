"""Where the library tokenizers breaks down, the error is one of ours and names the row."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from encoder_engine.errors import InputError, TextError
from encoder_engine.text import Tokenizer
from encoder_engine.text.encoders.library import LibraryEncoder
from tests.text.unigram_files import added

if TYPE_CHECKING:
    from pathlib import Path

STRIP = {"type": "Strip", "content": " ", "start": 1, "stop": 1}


@pytest.fixture
def tok(tmp_path: Path) -> Tokenizer:
    """Read a file in which one added token takes in the white space that is another."""
    file: dict[str, Any] = {
        "version": "1.0",
        "added_tokens": [
            added("<s>", rstrip=True) | {"id": 0},
            added(" ", lstrip=True) | {"id": 1},
        ],
        "normalizer": None,
        "pre_tokenizer": None,
        "post_processor": None,
        "decoder": STRIP,
        "model": {
            "type": "WordLevel",
            "unk_token": "<unk>",
            "vocab": {"<s>": 0, " ": 1, "<unk>": 2},
        },
    }
    path = tmp_path / "tokenizer.json"
    path.write_text(json.dumps(file), encoding="utf-8")
    return Tokenizer.from_pretrained(path)


@pytest.mark.parametrize("num_threads", [None, 1])
def test_a_text_that_breaks_the_library_is_named(tok: Tokenizer, num_threads: int | None) -> None:
    texts = ["y", "<s>", "<s>  x", "y"]
    with pytest.raises(TextError, match=r"text at row 2 makes the library") as caught:
        tok.encode_batch(texts, num_threads=num_threads)
    assert caught.value.row == 2
    with pytest.raises(TextError, match=r"second text at row 2"):
        tok.encode_batch(["y"] * 4, texts)
    with pytest.raises(TextError, match="the text makes the library"):
        tok.encode(texts[2])
    assert tok.encode_batch(texts[:2]).tolist() == [[2], [0]]


def test_tokens_that_break_its_decoder_are_refused(tok: Tokenizer) -> None:
    with pytest.raises(InputError, match="fails to decode these tokens"):
        tok.decode([1], skip_special_tokens=False)


def encoder_of(tok: Tokenizer) -> Any:
    """Give the encoder that calls the library."""
    encoder = tok._native
    assert isinstance(encoder, LibraryEncoder)
    return encoder


class Stopping:
    """Stands for a library tokenizer whose calls end by an error that is no panic of its own."""

    def __init__(self, error: BaseException) -> None:
        self.error = error
        self.sizes: list[int] = []

    def encode(self, texts: str | list[str], **_: object) -> None:
        self.sizes.append(len(texts))
        raise self.error

    encode_batch = encode_batch_fast = encode


@pytest.mark.parametrize("error", [KeyboardInterrupt(), MemoryError("full")])
def test_what_is_no_panic_is_raised_as_it_came(
    tok: Tokenizer, monkeypatch: pytest.MonkeyPatch, error: BaseException
) -> None:
    """An interrupt ends the call at once, without a search for the row."""
    stopping = Stopping(error)
    monkeypatch.setattr(encoder_of(tok), "_tokenizer", stopping)
    for call in (lambda: tok.encode_batch(["y"] * 9), lambda: tok.encode("y")):
        with pytest.raises(type(error)) as caught:
            call()
        assert caught.value is error
        assert error.__cause__ is None
    assert stopping.sizes == [9, 1]


def test_an_interrupt_while_the_row_is_sought_ends_the_search(
    tok: Tokenizer, monkeypatch: pytest.MonkeyPatch
) -> None:
    encoder = encoder_of(tok)
    library = encoder._tokenizer

    class Interrupted:
        """Fails on batches as the library does, and on single texts by an interrupt."""

        def encode_batch_fast(self, texts: list[str], **options: Any) -> Any:
            if len(texts) == 1:
                raise KeyboardInterrupt
            return library.encode_batch_fast(texts, **options)

    monkeypatch.setattr(encoder, "_tokenizer", Interrupted())
    with pytest.raises(KeyboardInterrupt):
        tok.encode_batch(["y", "<s>  x"])
