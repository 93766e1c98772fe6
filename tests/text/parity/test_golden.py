"""Recorded results on a small vocabulary, which need no other library to be checked."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from encoder_engine.text import Tokenizer
from tests import ROOT
from tests.text.oracle.reference import ReferenceTokenizer

if TYPE_CHECKING:
    from pathlib import Path

    from encoder_engine.text import Encoding

GOLDEN: dict[str, Any] = json.loads((ROOT / "tests/golden/tokenizer_golden.json").read_text())
FIELDS = ("type_ids", "offsets", "word_ids", "special_tokens_mask")


@pytest.fixture(params=["uncased", "cased"])
def case(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[Tokenizer, dict[str, Any]]:
    """Read one recorded tokenizer and its results."""
    golden = GOLDEN[request.param]
    path = tmp_path / "tokenizer.json"
    path.write_text(json.dumps(golden["tokenizer"]))
    return Tokenizer.from_pretrained(path), golden["results"]


def check(encoding: Encoding, rows: list[dict[str, Any]]) -> None:
    """Compare every field with the recorded rows."""
    assert encoding.tolist() == [row["ids"] for row in rows]
    for field in FIELDS:
        assert getattr(encoding, field).tolist() == [item for row in rows for item in row[field]]


def test_texts_give_the_recorded_rows(case: tuple[Tokenizer, dict[str, Any]]) -> None:
    tokenizer, results = case
    texts = GOLDEN["texts"]
    encoding = tokenizer.encode_batch(texts, return_offsets=True)
    check(encoding, results["texts"])
    check(tokenizer.encode_batch(texts, texts[::-1], return_offsets=True), results["pairs"])
    assert [tokenizer.decode(ids) for ids in encoding.tolist()] == results["decoded"]


def test_cut_texts_give_the_recorded_rows(case: tuple[Tokenizer, dict[str, Any]]) -> None:
    tokenizer, results = case
    for item in results["cuts"]:
        cut = item["cut"]
        encoding = tokenizer.encode_batch(
            GOLDEN["texts"],
            max_length=cut["max_length"],
            stride=cut["stride"],
            return_overflow=True,
            truncation_side=cut["direction"],
            return_offsets=True,
        )
        check(encoding, [row for rows in item["rows"] for row in rows])


def test_the_oracle_gives_the_recorded_rows(case: tuple[Tokenizer, dict[str, Any]]) -> None:
    tokenizer, results = case
    oracle = ReferenceTokenizer(tokenizer.spec)
    for text, expected in zip(GOLDEN["texts"], results["texts"], strict=True):
        (row,) = oracle.encode(text)
        assert row.ids == expected["ids"]
        assert [list(offset) for offset in row.offsets] == expected["offsets"]
