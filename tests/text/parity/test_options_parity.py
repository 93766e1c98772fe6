"""Files with drawn options: equal to tokenizers in everything, or refused by type."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from encoder_engine.text import Tokenizer
from tests.text.parity.options import compare_options
from tests.text.parity.peers import Peer, Settings
from tests.text.unigram_files import added, metaspace, replace, sequence

if TYPE_CHECKING:
    from pathlib import Path

PIECES = ["<unk>", "<s>", "</s>", *"abcexy\u00e9\u0301\u0323▁中", "ab", "▁a", "\u00e9x", "(", ")"]
ROBERTA = {"type": "RobertaProcessing", "sep": ["</s>", 2], "cls": ["<s>", 1]}


def test_drawn_files_agree_or_are_refused(tmp_path: Path) -> None:
    counts, faults = compare_options(8_000, 20_180_429, tmp_path)
    assert not faults
    assert counts["read Unigram"] > 5
    assert counts["read WordPiece"] > 1


def write(folder: Path, **members: Any) -> Path:
    """Write a tokenizer.json with a small Unigram model."""
    file: dict[str, Any] = {
        "version": "1.0",
        "added_tokens": [],
        "normalizer": None,
        "pre_tokenizer": None,
        "post_processor": None,
        "decoder": None,
        "model": {
            "type": "Unigram",
            "unk_id": 0,
            "vocab": [[piece, -float(len(piece))] for piece in PIECES],
            "byte_fallback": False,
        },
    }
    path = folder / "tokenizer.json"
    path.write_text(json.dumps(file | members), encoding="utf-8")
    return path


@pytest.mark.parametrize("form", ["NFC", "NFD", "NFKC", "NFKD"])
@pytest.mark.parametrize("mark", ["\u0903", "\u093f", "\u20dd", "\u0301", "\u0b4d"])
def test_what_is_dropped_parts_no_neighbours(tmp_path: Path, form: str, mark: str) -> None:
    accents = {"type": "StripAccents"}
    steps = [
        [accents, {"type": form}],
        [accents, replace("ab", "c")],
        [accents, replace(r"\s{2,}", "x", regex=True)],
        [{"type": "NFKD"}, accents, {"type": "Lowercase"}, {"type": form}],
    ]
    texts = [f"a{mark}b", f"a{mark * 3}bx", f" {mark} {mark} ", f"e{mark}\u3099", f"ᄀ{mark}ᅡ{mark}ᆨ"]
    texts += [f"(\u0315{mark}\u0300\u05ae{mark}b)", f"か{mark}\u3099", f"{mark}a{mark}b"]
    for number, some in enumerate(steps):
        peer = Peer(f"{form} {number}", write(tmp_path, normalizer=sequence("normalizers", *some)))
        assert peer.compare(texts, None, Settings()) is None


@pytest.mark.parametrize("prefixed", [True, False])
def test_offsets_of_a_mask_that_takes_in_spaces_are_trimmed(tmp_path: Path, prefixed: bool) -> None:
    flags = {"trim_offsets": True, "add_prefix_space": prefixed}
    mask = added("<mask>", lstrip=True, rstrip=True, special=True) | {"id": len(PIECES)}
    normal = added("B", lstrip=True, normalized=True) | {"id": len(PIECES) + 1}
    path = write(
        tmp_path,
        added_tokens=[mask, normal],
        normalizer=replace("y", "  "),
        pre_tokenizer=metaspace("never"),
        post_processor=ROBERTA | flags,
    )
    peer = Peer("trimmed", path)
    texts = ["a <mask> b", " <mask>", "  <mask>  a", "x\t\u00a0 <mask>", "yB", " yyB a B", "\u3000"]
    texts += ["\tQ\t", "Q\u00a0\u00a0", "\u0120", "<mask> <mask>", "a <mask> b yyB " * 100]
    for settings in (Settings(), Settings(max_length=4, stride=1, overflow=True)):
        assert peer.compare(texts, None, settings) is None
        assert peer.compare(texts, texts[::-1], settings) is None
    saved = tmp_path / "saved"
    peer.ours.save(saved)
    tok = Tokenizer.from_pretrained(saved)
    assert tok.spec == peer.ours.spec
    both = [one.encode_batch(texts, return_offsets=True).offsets for one in (tok, peer.ours)]
    assert both[0].tolist() == both[1].tolist()


def test_an_added_token_at_the_end_within_white_space_taken_in(tmp_path: Path) -> None:
    tokens = [added("<m>", rstrip=True), added("\u0085"), added("\n", rstrip=True)]
    listed = [token | {"id": len(PIECES) + index} for index, token in enumerate(tokens)]
    peer = Peer("end", write(tmp_path, added_tokens=listed))
    texts = ["<m>\u0085", "a<m> \u0085", "\n\n", "a\n\n\n", "<m>\n", "<m>\u0085a"]
    assert peer.compare(texts, None, Settings()) is None
