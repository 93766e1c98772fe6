"""``encoder-engine train-tokenizer``: from compressed files, columns and standard input."""

from __future__ import annotations

import gzip
import json
import lzma
import os
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from encoder_engine.text import Tokenizer
from tests import ROOT
from tests.text.training.test_train import TEXTS

if TYPE_CHECKING:
    from pathlib import Path

    from tests.cli.conftest import Run

SMALL = ("--vocab-size", 300)


@pytest.fixture
def corpus(tmp_path: Path) -> Path:
    """Write texts, one a line."""
    path = tmp_path / "texts.txt"
    path.write_text("".join(f"{text}\n" for text in TEXTS), encoding="utf-8")
    return path


def digests(folder: Path) -> str:
    return (folder / "SHA256SUMS").read_text()


def train(corpus: Path, output: Path, *arguments: str, seed: int) -> str:
    """Train in a process whose hash tables have another order, and return the checksums."""
    command = [sys.executable, "-m", "encoder_engine.cli", "train-tokenizer", str(corpus)]
    environment = {**os.environ, "PYTHONHASHSEED": str(seed)}
    subprocess.run(
        [*command, "--output", str(output), "--quiet", *arguments],
        check=True,
        cwd=ROOT,
        env=environment,
    )
    return digests(output)


def test_the_same_input_gives_the_same_bytes_in_every_process(corpus: Path, tmp_path: Path) -> None:
    wishes = ("--vocab-size", "300", "--input-limit", "1200", "--seed", "3")
    first, second, other = (
        train(corpus, tmp_path / name, *wishes, *more, seed=number)
        for number, (name, more) in enumerate(
            {"a": (), "b": (), "c": ("--seed", "4")}.items(), start=1
        )
    )
    assert first == second
    assert first != other


def test_sentencepiece_gives_the_same_bytes_in_every_process(tmp_path: Path) -> None:
    script = (
        "import hashlib, sys; from tests.text.training.test_train import TEXTS;"
        "from encoder_engine.text.training.unigram import train_with_sentencepiece as train;"
        "r = train(TEXTS, vocab_size=200, extra_tokens=(), lowercase=False, byte_fallback=False,"
        " coverage=0.9995, max_length=4096);"
        "print(hashlib.sha256(r.tokenizer_json.encode() + r.sentencepiece_model).hexdigest())"
    )
    found = {
        subprocess.run(
            [sys.executable, "-c", script],
            check=True,
            capture_output=True,
            cwd=ROOT,
            env={**os.environ, "PYTHONPATH": str(ROOT), "PYTHONHASHSEED": str(seed)},
        ).stdout
        for seed in (1, 2)
    }
    assert len(found) == 1


def test_every_way_to_hand_texts_over_gives_the_same(
    run: Run, corpus: Path, tmp_path: Path
) -> None:
    content = corpus.read_bytes()
    (tmp_path / "texts.txt.gz").write_bytes(gzip.compress(content))
    (tmp_path / "texts.txt.xz").write_bytes(lzma.compress(content))
    rows = "".join(json.dumps({"body": text}) + "\n" for text in TEXTS)
    (tmp_path / "texts.jsonl.gz").write_bytes(gzip.compress(rows.encode()))
    ways = {
        "plain": ("texts.txt",),
        "gz": ("texts.txt.gz",),
        "xz": ("texts.txt.xz",),
        "jsonl": ("texts.jsonl.gz", "--column", "body"),
    }
    found = set()
    for name, (file, *more) in ways.items():
        output = tmp_path / name
        result = run("train-tokenizer", tmp_path / file, "-o", output, *SMALL, "--quiet", *more)
        assert (result.code, result.output, result.errors) == (0, "", "")
        found.add(digests(output))
    with corpus.open("rb") as stream:
        subprocess.run(
            [
                *(sys.executable, "-m", "encoder_engine.cli", "train-tokenizer", "-", "-q"),
                *("-o", str(tmp_path / "stdin"), *map(str, SMALL)),
            ],
            stdin=stream,
            check=True,
            cwd=ROOT,
        )
    found.add(digests(tmp_path / "stdin"))
    assert len(found) == 1


def test_labelled_corpora_are_sampled_and_the_summary_says_how(
    run: Run, corpus: Path, tmp_path: Path
) -> None:
    few = tmp_path / "few.txt"
    few.write_text("".join(f"{text}\n" for text in [*TEXTS[:100], ""]), encoding="utf-8")
    arguments = ("--corpus", f"en={corpus}", "--corpus", f"de={few}", *SMALL)
    result = run("train-tokenizer", *arguments, "-o", tmp_path / "out", "--json")
    assert result.code == 0
    summary = json.loads(result.output)
    assert summary["corpora"]["de"]["num_texts"] == 101
    assert summary["corpora"]["de"]["num_read"] > 101
    assert summary["vocab_size"] == Tokenizer.from_pretrained(tmp_path / "out").vocab_size == 300
    shown = run(
        "train-tokenizer", *arguments, "-o", tmp_path / "shown", "--max-sentence-length", 16
    )
    assert "de: " in shown.output
    assert "cut at --max-sentence-length" in shown.output
    assert "blank texts" in shown.output


BAD = {
    "no input": ("-o {folder}/out", 2, "name inputs"),
    "both kinds": ("{folder}/texts.txt --corpus en=x -o {folder}/out", 2, "not both"),
    "no label": ("--corpus {folder}/texts.txt -o {folder}/out", 2, "LABEL=INPUT"),
    "no output": ("{folder}/texts.txt", 2, "--output"),
    "an unknown model": ("{folder}/texts.txt -o {folder}/out --kind bpe", 2, "unigram"),
    "a missing file": ("{folder}/text.txt -o {folder}/out", 1, "did you mean"),
    "broken gz": ("{folder}/broken.txt.gz -o {folder}/out", 1, "cannot be unpacked"),
    "a half gz": ("{folder}/half.txt.gz -o {folder}/out", 1, "cannot be unpacked"),
    "a half xz": ("{folder}/half.txt.xz -o {folder}/out", 1, "cannot be unpacked"),
    "packed parquet": ("{folder}/a.parquet.gz -o {folder}/out", 1, "compressed inside"),
    "too small": ("{folder}/texts.txt -o {folder}/out --vocab-size 11", 1, "alphabet alone"),
    "an output that exists": ("{folder}/texts.txt -o {folder}", 1, "name another folder"),
}


@pytest.mark.parametrize("name", BAD)
def test_what_is_wrong_is_said_in_one_line(
    run: Run, corpus: Path, tmp_path: Path, name: str
) -> None:
    line, code, words = BAD[name]
    packed = gzip.compress(corpus.read_bytes())
    (tmp_path / "broken.txt.gz").write_bytes(b"no gzip at all")
    (tmp_path / "half.txt.gz").write_bytes(packed[: len(packed) // 2])
    xz = lzma.compress(corpus.read_bytes())
    (tmp_path / "half.txt.xz").write_bytes(xz[: len(xz) // 2])
    (tmp_path / "a.parquet.gz").write_bytes(packed)
    result = run("train-tokenizer", *line.format(folder=tmp_path).split())
    assert result.code == code
    assert words in result.errors
    assert not (tmp_path / "out").exists()
    assert not list(tmp_path.glob("*.partial"))
