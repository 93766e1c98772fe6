"""What fuzzing found, each held to Hugging Face tokenizers so that it stays mended."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from tests.text.parity.peers import Peer, Settings
from tests.text.sentencepiece_models import SentencePiecePeer, train

if TYPE_CHECKING:
    from pathlib import Path

PIECES = ("[UNK]", "##", "i", "a", "##a", "want", "##ed", "abcdefghijklmnop")


@pytest.mark.parametrize(
    "text", ["i\0", "\u00ef\0", "want\0 a", "a\0a", "abcdefghijklmno\0", "\0i"]
)
def test_a_zero_at_the_end_of_an_uncleaned_word_is_a_character(tmp_path: Path, text: str) -> None:
    """A cache of words padded its keys with zeros, and took "i" with a zero behind it for "i"."""
    model = {
        "type": "WordPiece",
        "unk_token": "[UNK]",
        "continuing_subword_prefix": "##",
        "max_input_chars_per_word": 100,
        "vocab": {piece: number for number, piece in enumerate(PIECES)},
    }
    switches = ("handle_chinese_chars", "strip_accents", "lowercase")
    normalizer = {"type": "BertNormalizer", "clean_text": False} | dict.fromkeys(switches, True)
    top: dict[str, object] = {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [],
        "normalizer": normalizer,
        "pre_tokenizer": {"type": "BertPreTokenizer"},
        "post_processor": None,
        "decoder": None,
        "model": model,
    }
    path = tmp_path / "tokenizer.json"
    path.write_text(json.dumps(top), encoding="utf-8")
    peer = Peer("uncleaned", path)
    for texts in ([text], [text, text.rstrip("\0"), text]):
        assert (found := peer.compare(texts, None, Settings())) is None, str(found)


def test_a_word_whose_mark_an_unknown_token_took_in_is_not_remembered(tmp_path: Path) -> None:
    """Where no piece is the mark alone, "~ é" is an unknown token, mark and all, and "é".

    That was remembered as all there is to the word, and so given behind a known token as well.
    """
    pytest.importorskip(
        "sentencepiece", reason="sentencepiece trains the model and reads it as well"
    )
    path = train(tmp_path, ["plain"])["plain"]
    mark, other = (b"\n\x03" + piece.encode() for piece in "▁\ue000")
    model = path.read_bytes()
    assert model.count(mark) == 1
    path.write_bytes(model.replace(mark, other))
    for x in "é中ü;?)":
        for text in (f"~ {x} a {x}", f"a {x} ~ {x}", f"~~ {x} ~ {x}"):
            peer = SentencePiecePeer("unmarked", path)
            assert (found := peer.compare([text, text])) is None, found
