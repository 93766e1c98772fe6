"""Vocabularies that grow by words."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from encoder_engine.errors import ConfigError
from encoder_engine.text import Tokenizer
from encoder_engine.text.training.extend_vocabulary import with_tokens

if TYPE_CHECKING:
    from pathlib import Path


def test_a_grown_vocabulary_is_saved_and_read_back(toy_folder: Path, tmp_path: Path) -> None:
    grown = with_tokens(Tokenizer.from_pretrained(toy_folder), ["wanted", "wanted", "lowest"])
    grown.save(tmp_path / "grown")
    again = Tokenizer.from_pretrained(tmp_path / "grown")
    assert again.encode("wanted lowest", add_special_tokens=False).tolist() == [26, 14]


def test_no_vocabulary_grows_under_an_added_token_that_follows_it(toy_folder: Path) -> None:
    """The tokenizer was saved, and the file was refused when it was read."""
    added = {"26": {"content": "[DOC]", "special": True}}
    (toy_folder / "tokenizer_config.json").write_text(
        json.dumps({"do_lower_case": True, "added_tokens_decoder": added})
    )
    with pytest.raises(ConfigError, match=r"'\[DOC\]' \(id 26\) is not in the vocabulary"):
        with_tokens(Tokenizer.from_pretrained(toy_folder), ["wanted"])
