"""Recorded results on small Unigram models, which need no other library to be checked."""

from __future__ import annotations

import base64
import json
import lzma
from typing import TYPE_CHECKING, Any

import pytest

from encoder_engine.text import Encoding, Tokenizer
from tests import ROOT
from tests.text.oracle.reference import ReferenceTokenizer

if TYPE_CHECKING:
    from pathlib import Path

GOLDEN: dict[str, Any] = json.loads((ROOT / "tests/golden/unigram_golden.json").read_text())
TEXTS: list[str] = GOLDEN["texts"]


def read(packed: str, path: Path) -> Tokenizer:
    path.write_bytes(lzma.decompress(base64.b64decode(packed)))
    return Tokenizer.from_pretrained(path)


def check(encoding: Encoding, rows: list[dict[str, Any]]) -> None:
    """Compare every field with the recorded rows."""
    assert encoding.tolist() == [row["ids"] for row in rows]
    for field in ("offsets", "word_ids"):
        assert getattr(encoding, field).tolist() == [item for row in rows for item in row[field]]


@pytest.mark.parametrize("golden", GOLDEN["json"], ids=["plain", "bytes"])
def test_files_give_the_recorded_rows(golden: dict[str, Any], tmp_path: Path) -> None:
    tokenizer = read(golden["tokenizer"], tmp_path / "tokenizer.json")
    encoding = tokenizer.encode_batch(TEXTS, return_offsets=True)
    check(encoding, golden["texts"])
    check(tokenizer.encode_batch(TEXTS, TEXTS[::-1], return_offsets=True), golden["pairs"])
    assert [tokenizer.decode(ids) for ids in encoding.tolist()] == golden["decoded"]
    oracle = ReferenceTokenizer(tokenizer.spec)
    for text, expected in zip(TEXTS, golden["texts"], strict=True):
        (row,) = oracle.encode(text)
        assert row.ids == expected["ids"]
        assert [list(offset) for offset in row.offsets] == expected["offsets"]


@pytest.mark.parametrize("golden", GOLDEN["model"], ids=["plain", "bytes", "suffix"])
def test_models_give_the_recorded_rows(golden: dict[str, Any], tmp_path: Path) -> None:
    tokenizer = read(golden["proto"], tmp_path / "golden.model")
    encoding = tokenizer.encode_batch(TEXTS, return_offsets=True)
    assert encoding.tolist() == golden["ids"]
    assert encoding.offsets.tolist() == [item for row in golden["offsets"] for item in row]
    assert [tokenizer.decode(ids) for ids in encoding.tolist()] == golden["decoded"]
    oracle = ReferenceTokenizer(tokenizer.spec)
    for text, ids, offsets in zip(TEXTS, golden["ids"], golden["offsets"], strict=True):
        (row,) = oracle.encode(text)
        assert row.ids == ids
        assert [list(offset) for offset in row.offsets] == offsets
