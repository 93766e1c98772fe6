"""Files are encoded as their texts are, by native models and by the library's."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import numpy as np
import pytest

from encoder_engine.errors import InputError, ReadError, RowError, TextError
from encoder_engine.inputs import text_rows
from encoder_engine.text import Tokenizer

if TYPE_CHECKING:
    from pathlib import Path

TEXTS = ["lowest", "", "un wanted [MASK]", "é中 😀 low", "b\u0301 \u2028e", "want " * 300]


@pytest.fixture
def files(tmp_path: Path) -> list[Path]:
    """Write the texts as lines, as JSON with and without escapes, and as a table."""
    folder = tmp_path / "files"
    folder.mkdir()
    (folder / "a.txt").write_bytes("".join(f"{text}\r\n" for text in TEXTS).encode())
    for name, ascii_only in (("b.jsonl", True), ("c.jsonl", False)):
        rows = [json.dumps({"n": 1, "text": t}, ensure_ascii=ascii_only) for t in TEXTS]
        (folder / name).write_text("\n".join(rows), encoding="utf-8")
    (folder / "d.csv").write_text('text\n"low, low"\n', encoding="utf-8")
    return [folder / name for name in ("a.txt", "b.jsonl", "c.jsonl", "d.csv")]


@pytest.mark.parametrize("group", [1, 1 << 24])
@pytest.mark.parametrize("max_length", [None, 16])
def test_files_give_the_encodings_of_their_texts(
    toy_folder: Path,
    files: list[Path],
    monkeypatch: pytest.MonkeyPatch,
    group: int,
    max_length: int | None,
) -> None:
    monkeypatch.setattr(text_rows, "_MOST_BYTES", group)
    monkeypatch.setattr(text_rows.read_text_rows, "__defaults__", (group,))
    tokenizer = Tokenizer.from_pretrained(toy_folder)
    texts = [*TEXTS, *TEXTS, *TEXTS, "low, low"]
    wanted = tokenizer.encode_batch(texts, max_length=max_length, return_offsets=True)
    found = list(tokenizer.encode_files(files, max_length=max_length, return_offsets=True))
    assert (len(found) > 1) == (group == 1)
    for name in ("ids", "offsets", "word_ids", "truncated"):
        parts = [getattr(encoding, name) for encoding in found]
        np.testing.assert_array_equal(np.concatenate(parts), getattr(wanted, name))
    lengths = [np.diff(encoding.cu_seqlens) for encoding in found]
    np.testing.assert_array_equal(np.concatenate(lengths), np.diff(wanted.cu_seqlens))
    folder = list(tokenizer.encode_files(str(files[0].parent), max_length=max_length))
    np.testing.assert_array_equal(np.concatenate([e.ids for e in folder]), wanted.ids)


@pytest.mark.slow
def test_models_of_the_library_encode_files_as_well(tmp_path: Path, files: list[Path]) -> None:
    vocab = {"[UNK]": 0, "low": 1, "lowest": 2, "want": 3}
    model = {"type": "WordLevel", "vocab": vocab, "unk_token": "[UNK]"}
    top = {"version": "1.0", "added_tokens": [], "pre_tokenizer": {"type": "Whitespace"}}
    (tmp_path / "tokenizer.json").write_text(json.dumps(top | {"model": model}))
    tokenizer = Tokenizer.from_pretrained(tmp_path / "tokenizer.json")
    (found,) = tokenizer.encode_files(files[0])
    np.testing.assert_array_equal(found.ids, tokenizer.encode_batch(TEXTS).ids)


def test_errors_name_the_file_and_the_line_or_the_text(toy_folder: Path, tmp_path: Path) -> None:
    tokenizer = Tokenizer.from_pretrained(toy_folder)
    path = tmp_path / "a.jsonl"
    path.write_bytes(b'{"text": "low"}\n{"text": "\xff"}\n')
    with pytest.raises(RowError, match=r"a\.jsonl, line 2: byte 11 \(0xFF\) is not UTF-8"):
        list(tokenizer.encode_files(path))
    with pytest.raises(RowError, match="line 1: no column 'body'"):
        list(tokenizer.encode_files(path, column="body"))
    with pytest.raises(ReadError, match="does not exist"):
        tokenizer.encode_files(tmp_path / "none.txt")
    with pytest.raises(RowError, match="has 3 characters, the limit is 2"):
        list(tokenizer.encode_files(path, max_characters=2))
    with pytest.raises(InputError, match="max_length is 1, but the template alone takes 2"):
        tokenizer.encode_files(path, max_length=1)


def test_a_token_beyond_the_table_names_its_text(
    toy_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(text_rows.read_text_rows, "__defaults__", (1,))
    tokenizer = Tokenizer.from_pretrained(toy_folder)
    size = tokenizer.vocab_size
    with pytest.warns(UserWarning, match="the model's table"):
        fitted = tokenizer.fitted_to(size - 1)
    path = tmp_path / "a.txt"
    path.write_text("low\nlow\n'\n")
    with pytest.raises(TextError, match="behind 2 other texts") as caught:
        list(fitted.encode_files(path))
    assert caught.value.row == 2
