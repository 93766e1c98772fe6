"""Saved and loaded again, a tokenizer is the same whatever its file calls its special tokens."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
import transformers

from encoder_engine.text import Tokenizer
from tests.text.conftest import TOY_TOKENS

if TYPE_CHECKING:
    from pathlib import Path

TEXTS = ["want [MASK] low", "[PAD] a [UNK] <unk>", "unwanted", "[CLS]a[SEP]"]


def write(folder: Path, *, listed: tuple[str, ...], more: tuple[str, ...] = ()) -> Path:
    """Write a tokenizer.json whose added tokens are the ``listed`` ones only."""
    vocab = {token: number for number, token in enumerate((*TOY_TOKENS, *more))}
    flags = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False}
    padding = {
        "strategy": "BatchLongest",
        "direction": "Right",
        "pad_to_multiple_of": None,
        "pad_id": 0,
        "pad_type_id": 0,
        "pad_token": "[PAD]",
    }
    file: dict[str, Any] = {
        "version": "1.0",
        "truncation": None,
        "padding": padding,
        "added_tokens": [
            {"id": vocab[name], "content": name, **flags, "special": True} for name in listed
        ],
        "normalizer": None,
        "pre_tokenizer": {"type": "BertPreTokenizer"},
        "post_processor": None,
        "decoder": {"type": "WordPiece", "prefix": "##", "cleanup": True},
        "model": {
            "type": "WordPiece",
            "unk_token": "[UNK]",
            "continuing_subword_prefix": "##",
            "max_input_chars_per_word": 100,
            "vocab": vocab,
        },
    }
    folder.mkdir()
    path = folder / "tokenizer.json"
    path.write_text(json.dumps(file), encoding="utf-8")
    return path


@pytest.mark.parametrize("listed", [(), ("[MASK]",), ("[UNK]", "[PAD]"), TOY_TOKENS[:5]], ids=len)
def test_names_that_are_no_added_tokens_do_not_become_some(
    tmp_path: Path, listed: tuple[str, ...]
) -> None:
    path = write(tmp_path / "first", listed=listed)
    tok = Tokenizer.from_pretrained(path)
    tok.save(tmp_path / "saved")
    again = Tokenizer.from_pretrained(tmp_path / "saved")
    assert again.spec == tok.spec
    assert again.encode_batch(TEXTS).tolist() == tok.encode_batch(TEXTS).tolist()
    theirs = transformers.AutoTokenizer.from_pretrained(tmp_path / "saved")
    # It makes an added token of what the padding names, whichever directory the file is in.
    first = transformers.PreTrainedTokenizerFast(  # type: ignore[no-untyped-call]
        tokenizer_file=str(path)
    )
    assert theirs(TEXTS)["input_ids"] == first(TEXTS)["input_ids"]


@pytest.mark.parametrize("piece", ["\n", "a\nb", "a\r", "a\rb"])
def test_a_piece_that_is_no_line_leaves_vocab_txt_out(tmp_path: Path, piece: str) -> None:
    tok = Tokenizer.from_pretrained(write(tmp_path / "first", listed=(), more=(piece,)))
    tok.save(tmp_path / "saved")
    assert not (tmp_path / "saved" / "vocab.txt").exists()
    assert Tokenizer.from_pretrained(tmp_path / "saved").spec == tok.spec
