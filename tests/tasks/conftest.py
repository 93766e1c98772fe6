"""A tokenizer of two letters for the tests of tasks."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from encoder_engine import Tokenizer

if TYPE_CHECKING:
    from pathlib import Path

VOCABULARY = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "a", "b", "##a", "##b"]


@pytest.fixture
def tokenizer(tmp_path: Path) -> Tokenizer:
    """Return an uncased WordPiece tokenizer whose words are of the letters a and b."""
    path = tmp_path / "vocab.txt"
    path.write_text("\n".join(VOCABULARY) + "\n", "utf-8")
    return Tokenizer.from_pretrained(path, lowercase=True)
