"""Scores of a tokenizer.json are the library's to the last bit: it decides between equal sums."""

from __future__ import annotations

import json
import random
from typing import TYPE_CHECKING, Any

import pytest
from tokenizers import Tokenizer as HubTokenizer

from encoder_engine.text import Tokenizer
from tests.text.parity.peers import Settings

if TYPE_CHECKING:
    from pathlib import Path

    from tests.text.parity.peers import Peer


def their_scores(theirs: HubTokenizer) -> list[float]:
    """Give the scores that the library holds; it writes them exactly."""
    top: Any = json.loads(theirs.to_str())
    return [score for _, score in top["model"]["vocab"]]


def draw_number(rng: random.Random) -> str:
    """Draw a number of a JSON file, of few digits or of more than 64 bits hold."""
    digits = [rng.choices("0123456789", k=rng.choice((1, 2, 15, 17, 19, 20, 21, 40))) for _ in "ab"]
    whole = "".join(digits[0]).lstrip("0") or "0"
    part = "." + "".join(digits[1]) if rng.random() < 0.8 else ".0"
    exponents = ("e-5", "E+7", "e22", "e-23", "e0", "e-300", "e-310", "e-340", "e-400", "e250")
    exponent = rng.choice(exponents) if rng.random() < 0.4 else ""
    return rng.choice(("", "-")) + whole + part + exponent


def test_scores_of_published_files_are_the_same(unigram_peers: list[Peer]) -> None:
    for peer in unigram_peers:
        scores: Any = peer.ours.spec.model
        assert list(scores.scores) == their_scores(peer.theirs), peer.name


def test_numbers_however_written_are_the_same(tmp_path: Path) -> None:
    rng = random.Random(4)
    numbers = [draw_number(rng) for _ in range(3000)]
    numbers += ["0.0", "-0.0", "-0.0e-400", "18446744073709551615.0", "18446744073709551616.0"]
    numbers += ["0.18446744073709551616", "2.2250738585072014e-308", "5e-324", "1e-9999999999"]
    vocab = ", ".join(f'["{index}x", {number}]' for index, number in enumerate(numbers))
    model = f'{{"type": "Unigram", "unk_id": 0, "vocab": [{vocab}]}}'
    text = f'{{"version": "1.0", "added_tokens": [], "model": {model}}}'
    path = tmp_path / "tokenizer.json"
    path.write_text(text, encoding="utf-8")
    read: Any = Tokenizer.from_pretrained(path).spec.model
    expected = their_scores(HubTokenizer.from_str(text))
    for number, ours, theirs in zip(numbers, read.scores, expected, strict=True):
        assert ours.hex() == theirs.hex(), number


@pytest.mark.parametrize("text", ["aioioaeee", "Afeee", "fBeACAeCCCCC", "eee" * 50, "CCCCC" * 9])
def test_paths_of_equal_sums_are_the_same(unigram_peers: list[Peer], text: str) -> None:
    for peer in unigram_peers:
        mismatch = peer.compare([text], None, Settings())
        assert mismatch is None, str(mismatch)
