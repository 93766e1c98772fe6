"""``encoder-engine tokenize``: the tokenizer's own ids, tokens and offsets, a line each."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from encoder_engine.text import Tokenizer
from tests import ROOT

if TYPE_CHECKING:
    from pathlib import Path

    from tests.cli.conftest import Run

TEXTS = ["the text", "", "row 7"]


@pytest.fixture
def lines(tmp_path: Path) -> Path:
    """Write texts, one a line."""
    path = tmp_path / "in.txt"
    path.write_text("".join(f"{text}\n" for text in TEXTS), encoding="utf-8")
    return path


def test_ids_are_printed_a_line_per_text(run: Run, model: Path, lines: Path) -> None:
    result = run("tokenize", lines, "-m", model)
    tokenizer = Tokenizer.from_pretrained(model)
    expected = [" ".join(map(str, tokenizer.encode(text).tolist())) for text in TEXTS]
    assert (result.code, result.errors) == (0, "")
    assert result.output.splitlines() == expected


def test_a_vocabulary_file_will_do(run: Run, model: Path, lines: Path) -> None:
    result = run("tokenize", lines, "-m", model / "vocab.txt")
    assert result.output == run("tokenize", lines, "-m", model).output


def test_tokens_and_offsets_are_printed(run: Run, model: Path, lines: Path) -> None:
    result = run("tokenize", lines, "-m", model, "--tokens", "--offsets")
    assert result.output.splitlines() == [
        "[CLS]@0:0 the@0:3 text@4:8 [SEP]@0:0",
        "[CLS]@0:0 [SEP]@0:0",
        "[CLS]@0:0 row@0:3 7@4:5 [SEP]@0:0",
    ]


def test_a_reader_that_has_seen_enough_is_no_reason_to_complain(
    model: Path, tmp_path: Path
) -> None:
    path = tmp_path / "in.txt"
    path.write_text("the text\n" * 100_000, encoding="utf-8")
    command = [sys.executable, "-m", "encoder_engine.cli", "tokenize", str(path), "-m", str(model)]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, cwd=ROOT
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        assert process.stdout.readline()
        process.stdout.close()
        assert process.stderr.read() == b""
    assert process.returncode == 1


def test_json_holds_everything(run: Run, model: Path, lines: Path) -> None:
    result = run("tokenize", lines, "-m", model, "--json", "--offsets", "--max-length", 3)
    rows = [json.loads(line) for line in result.output.splitlines()]
    assert [row["truncated"] for row in rows] == [True, False, True]
    assert rows[0]["tokens"] == ["[CLS]", "the", "[SEP]"]
    assert rows[0]["offsets"] == [[0, 0], [0, 3], [0, 0]]
    assert len(rows[0]["ids"]) == 3
