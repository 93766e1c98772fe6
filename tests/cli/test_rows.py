"""The verbs that write training rows of plain texts: noise and inverse-cloze."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pyarrow.parquet
import pytest

from encoder_engine import Tokenizer
from encoder_engine.data.noising.span_corruption import Noised, restore_spans
from tests.embedding.test_families import save_tokenizer

if TYPE_CHECKING:
    from pathlib import Path

    from tests.cli.conftest import Run

TEXTS = [
    "The model of a text. A text of the model! The text.",
    "One sentence alone",
    "",
    "A. The a.",
]


@pytest.fixture
def texts(tmp_path: Path) -> Path:
    path = tmp_path / "texts.txt"
    path.write_text("".join(f"{text}\n" for text in TEXTS), "utf-8")
    return path


def lines_of(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text("utf-8").splitlines()]


def test_noised_words_are_written_as_rows_that_restore_the_texts(
    run: Run, texts: Path, tmp_path: Path
) -> None:
    out = tmp_path / "rows.jsonl"
    assert json.loads(run("noise", texts, "-o", out, "--json").output)["rows"] == 3
    sentinels = [f"<extra_id_{number}>" for number in range(100)]
    restored = [
        restore_spans(Noised(inputs=row["input"].split(), targets=row["target"].split()), sentinels)
        for row in lines_of(out)
    ]
    assert restored == [text.split() for text in TEXTS if text]
    assert "exists" in run("noise", texts, "-o", out).errors
    again = tmp_path / "again.jsonl"
    run("noise", texts, "-o", again, "--seed", 1)
    assert lines_of(again) != lines_of(out)
    assert run("noise", texts, "-o", tmp_path / "rows.txt").code == 1


def test_a_sentinel_in_a_text_is_refused_by_its_file_and_row(run: Run, tmp_path: Path) -> None:
    # The number was that of a passage among all files.
    first, second, out = (tmp_path / name for name in ("a.txt", "b.txt", "rows.jsonl"))
    first.write_text("A text. A text. A text.\n")
    second.write_text("A text. Another text.\nMy <extra_id_3> text.\n")
    bad = run("noise", first, second, "-o", out, "--max-length", 2)
    assert bad.code == 1
    assert f"{second}, row 2: a passage holds the sentinel '<extra_id_3>'; remove" in bad.errors
    assert not out.exists()


def test_rows_of_several_noises_are_cut_at_sentences(run: Run, texts: Path, tmp_path: Path) -> None:
    out = tmp_path / "rows.parquet"
    kinds = ("--kind", "text-infilling", "--kind", "sentence-permutation", "--mask", "[X]")
    assert run("noise", texts, "-o", out, *kinds, "--max-length", 5, "--share", 0.5).code == 0
    rows = pyarrow.parquet.read_table(out).to_pylist()
    assert [row["target"] for row in rows] == [
        *("The model of a text.", "A text of the model!", "The text."),
        *("One sentence alone", "A. The a."),
    ]
    assert any("[X]" in row["input"] for row in rows)
    bad = run("noise", texts, "-o", out, "--overwrite", "--kind", "span-corruption", *kinds)
    assert bad.code == 1
    assert "cannot be combined" in bad.errors


def test_ids_get_sentinels_and_special_tokens_of_the_tokenizer(
    run: Run, texts: Path, tmp_path: Path
) -> None:
    for name in ("t5", "roberta"):
        (tmp_path / name).mkdir()
        save_tokenizer(name, tmp_path / name)
    out = tmp_path / "rows.jsonl"
    assert run("noise", texts, "-o", out, "-t", tmp_path / "t5").code == 0
    tokenizer = Tokenizer.from_pretrained(tmp_path / "t5")
    sentinels = [tokenizer.token_to_id(f"<extra_id_{number}>") for number in (0, 1)]
    row = lines_of(out)[1]
    assert [row["input_ids"][-1], row["labels"][-1]] == [tokenizer.token_to_id("</s>")] * 2
    kept = Noised(inputs=row["input_ids"][:-1], targets=row["labels"][:-1])
    plain = tokenizer.encode("One sentence alone", add_special_tokens=False).tolist()
    assert restore_spans(kept, [number for number in sentinels if number is not None]) == plain
    missing = run("noise", texts, "-o", out, "--overwrite", "-t", tmp_path / "roberta")
    assert "<extra_id_0>" in missing.errors
    infill = ("--kind", "text-infilling", "--overwrite", "-o", out)
    assert "no mask token" in run("noise", texts, *infill, "-t", tmp_path / "t5").errors
    assert run("noise", texts, *infill, "-t", tmp_path / "roberta", "--max-length", 9).code == 0
    tokenizer = Tokenizer.from_pretrained(tmp_path / "roberta")
    frame = (tokenizer.cls_token_id, tokenizer.sep_token_id)
    assert all((row["labels"][0], row["labels"][-1]) == frame for row in lines_of(out))
    assert max(len(row["labels"]) for row in lines_of(out)) == 9
    # The tokenizer's own mask was written, whatever was asked for.
    masked = run("noise", texts, *infill, "-t", tmp_path / "roberta", "--mask", "[X]")
    assert (masked.code, "--mask is of words" in masked.errors) == (2, True)
    short = run("noise", texts, *infill, "-t", tmp_path / "roberta", "--max-length", 2)
    assert "no room is left for text" in short.errors


def test_sentences_and_their_contexts_are_written_as_pairs(
    run: Run, texts: Path, tmp_path: Path
) -> None:
    out = tmp_path / "pairs.jsonl"
    assert run("inverse-cloze", texts, "-o", out, "--keep", 0).code == 0
    rows = lines_of(out)
    assert len(rows) == 2
    assert rows[0]["query"] not in rows[0]["positive"]
    assert len(rows[0]["query"] + " " + rows[0]["positive"]) == len(TEXTS[0])
    assert run("inverse-cloze", texts, "-o", out, "--keep", 1, "--overwrite").code == 0
    assert [row["positive"] for row in lines_of(out)] == [TEXTS[0], TEXTS[3]]
    (tmp_path / "one.txt").write_text("One sentence alone\n", "utf-8")
    none = run("inverse-cloze", tmp_path / "one.txt", "-o", tmp_path / "none.jsonl")
    assert none.code == 1
    assert "no row" in none.errors
    assert not (tmp_path / "none.jsonl").exists()
